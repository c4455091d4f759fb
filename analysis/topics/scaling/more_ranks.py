"""Are more ranks worth it? What each increase gave, up to which count that was worth it, and what a
model says of the next ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from analysis.prediction.increases import WORTH_IT, increases, recommend
from analysis.records.frames import in_order
from analysis.table import (
    Column,
    Estimate,
    Row,
    Table,
    count,
    estimate_in,
    frame,
    joined,
    percent,
    plain_rows,
    signed_percent,
)
from analysis.topics.names import named, ranks_column, ratio_text
from analysis.topics.scaling.forecasts import ahead
from analysis.topics.scaling.how_far import chosen
from analysis.topics.scaling.series import OF_A_SERIES, SERIES, about, by_series, measured
from analysis.topics.topic import TWO, Answer, Caution, Rows, Sweep, Topic, counted, sentence

#: Counts that a caution names.
_NAMED = 4


class Increases(NamedTuple):
    """steps: a row per measured count but the smallest. worth: a row per series."""

    steps: Table
    worth: Table


def what_more_gave(of: Sweep) -> Increases:
    """Of completed runs whose ranks have cores of their own."""
    runs = of.made(by_series)
    # of a frame of ninety columns each cut would copy all
    done = measured(runs)[[*OF_A_SERIES, "gpus", "oversubscribed", "images_per_s"]]
    done = done[~done["oversubscribed"].astype(bool)]
    counts = done.groupby("series")["gpus"].transform("nunique")
    steps: list[Row] = []
    worth: list[Row] = []
    done = done[counts > 1]
    names = about(done)
    for series, own in done.groupby("series", sort=False):
        named = names[series]
        rates: Any = own.groupby("gpus")["images_per_s"].apply(list).to_dict()
        found = increases(rates)
        best = recommend(found)
        steps += [
            {**named, "before": i.before, "gpus": i.ranks,
             "n": min(len(rates[i.before]), len(rates[i.ranks])),
             **i.speed_up.columns("speedup"), **i.marginal.columns("marginal"),
             **i.gpu_hours.columns("hours")}
            for i in found
        ]  # fmt: skip
        ends = f"{best.most} is the largest count measured" if best.ends else None
        estimate = Estimate(best.ranks, best.least, best.most, len(own), ends)
        worth.append(named | estimate.columns("gpus"))
    of_steps, of_worth = _steps(runs), _worth(runs)
    return Increases(
        Table("increases", "What more ranks gave", of_steps,
              in_order(frame(steps, of_steps), of.order)),
        Table("recommended", "How many are worth it", of_worth,
              in_order(frame(worth, of_worth), of.order)),
    )  # fmt: skip


def worth_in_words(row: Row) -> str:
    """``4``, or ``2 (1 to 4)`` where the intervals leave it open."""
    found = estimate_in(row, "gpus")
    return count(found.value) if found.low == found.high else found.text(count)


def _steps(runs: pd.DataFrame) -> tuple[Column, ...]:
    ranks = ranks_column(runs)
    return (
        *SERIES,
        Column("global_batch", "Int64"),
        Column("before", "Int64"),
        replace(ranks, only_if_varied=False,
                cell=lambda row: f"{count(row['before'])} → {count(row['gpus'])}"),
        Column("n", "Int64", "runs", "of the count that has fewer"),
        Column("speedup", "Float64", "speed-up", "ratio of the geometric means of images/s, with "
               "its 95 % t interval", format=ratio_text, estimate=True),
        Column("marginal", "Float64", "throughput gained", f"by each added {ranks.heading[:-1]}, "
               "as a share of the throughput of one before; 100 % is perfect scaling",
               format=percent, estimate=True),
        Column("hours", "Float64", f"{ranks.heading[:-1]}-hours", "for the same images: change by "
               "the increase", format=signed_percent, estimate=True),
    )  # fmt: skip


def _worth(runs: pd.DataFrame) -> tuple[Column, ...]:
    return (
        *SERIES,
        Column("global_batch", "Int64"),
        replace(ranks_column(runs), only_if_varied=False, estimate=True, cell=worth_in_words,
                description=f"the largest count up to which each added one gave at least "
                f"{percent(WORTH_IT)} of the throughput of one before; in brackets by the ends of "
                "the intervals"),
    )  # fmt: skip


def _worth_it(of: Sweep) -> Iterable[Answer]:
    """What added ranks are shown to give, and the forecast, of one series."""
    what, found = of.what, (of.made(what_more_gave).worth, of.made(what_more_gave).steps,
                            of.made(ahead).table)  # fmt: skip
    tables = [plain_rows(table.data) for table in found]
    for one, known, under in chosen(of):
        worth, steps, further = (
            [row for row in rows if row["series"] == one["series"]] for rows in tables
        )
        several = len({other["series"] for other in known}) > 1
        whose = f"with {named(one, known)}" if several else ""
        said = [_up_to(own, steps, what, whose) for own in worth]
        points = [row for row in further if row["efficiency"] is not None]
        if points:
            ends = (f"{estimate_in(r, 'efficiency').text(TWO)} at {r['gpus']}" for r in points)
            error = signed_percent(points[0]["hold_out"])
            said.append(f"a model expects an efficiency of {' and '.join(ends)} {what}s (its error "
                        f"at {points[0]['hold_out_ranks']} {what}s: {error})")  # fmt: skip
        elif further and further[0]["hold_out"] is not None:
            said.append(f"no forecast: {further[0]['why']}")
        if said:
            least, most = (int(worth[0][f"gpus_{end}"]) if worth else None
                           for end in ("low", "high"))  # fmt: skip
            yield Answer(
                "more_ranks", f"Are more {what}s worth it?",
                sentence(under + said[0]),
                "forecast" if further else "recommended", "increases",
                {"worth": least, "at_most": most,
                 **{f"efficiency_{r['gpus']}": r["efficiency"] for r in points}},
                said[1:],
            )  # fmt: skip


def _up_to(own: Row, steps: Rows, what: str, whose: str) -> str:
    """Up to which count each added rank is shown to pay, from the ends of the intervals."""
    gives = f"{percent(WORTH_IT)} of the throughput that a {what} had before"
    least, most = (int(own[f"gpus_{end}"]) for end in ("low", "high"))
    first = min(steps, key=lambda row: row["gpus"])
    if least > first["before"]:
        more = f"; from {least} to {most} {what}s this is undecided" if most > least else ""
        upto = joined([f"yes, up to {least} {what}s", whose])
        return f"{upto}: each added one gives at least {gives}{more}"
    speed = estimate_in(first, "speedup")
    if speed.low is None or speed.high is None:
        few = ", too few runs for an interval"
        verdict = few if first["n"] < 2 else ", without an interval: the runs are identical"
    elif speed.low <= 1:
        verdict = ": a loss" if speed.high < 1 else ": no gain is shown"
    elif most > first["before"]:
        verdict = f"; whether each added {what} up to {most} gives {gives} is undecided"
    else:
        verdict = f"; an added {what} gives less than {gives}"
    give = f"{counted(first['gpus'], what)} give {speed.text(ratio_text)} times the throughput of "
    return f"{joined([whose, give], ', ')}{first['before']}{verdict}"


TOPIC = Topic(
    tables=(
        lambda of: of.made(what_more_gave).worth,
        lambda of: of.made(what_more_gave).steps,
        lambda of: of.made(ahead).table,
    ),
    answers=(_worth_it,),
    cautions=(
        lambda of: (Caution(f"{text}.", "times") for text in of.made(ahead).slower[:_NAMED]),
    ),
)
