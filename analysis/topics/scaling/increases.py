"""What each increase of the ranks gave, up to which count that was worth it, and the law behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from analysis.prediction.laws import (
    MORE_COUNTS,
    PARAMETERS,
    WORTH_IT,
    Law,
    Laws,
    Refusal,
    fit_laws,
    increases,
    recommend,
)
from analysis.records.frames import in_order
from analysis.table import (
    Column,
    Estimate,
    Row,
    Table,
    count,
    estimate_in,
    frame,
    number,
    percent,
    signed_percent,
)
from analysis.topics.scaling.efficiency import OF_A_SERIES, SERIES, about, measured
from analysis.topics.topic import ranks_column

#: With fewer counts no law is fitted.
_LEAST_COUNTS = min(PARAMETERS.values()) + MORE_COUNTS


class Increases(NamedTuple):
    """steps: a row per measured count but the smallest. worth: a row per series. laws: a row per
    series with enough counts."""

    steps: Table
    worth: Table
    laws: Table


def tables(runs: pd.DataFrame, techniques: Sequence[str]) -> Increases:
    """Of completed runs whose ranks have cores of their own; ``runs`` with ``series``."""
    # of a frame of ninety columns each cut would copy all
    done = measured(runs)[[*OF_A_SERIES, "gpus", "oversubscribed", "images_per_s", "step_s"]]
    done = done[~done["oversubscribed"].astype(bool)]
    counts = done.groupby("series")["gpus"].transform("nunique")
    steps: list[Row] = []
    worth: list[Row] = []
    laws: list[Row] = []
    done = done[counts > 1]
    names = about(done)
    for series, own in done.groupby("series", sort=False):
        rates, named = by_ranks(own, "images_per_s"), names[series]
        found = increases(rates)
        steps += [
            {**named, "before": i.before, "gpus": i.ranks,
             "n": min(len(rates[i.before]), len(rates[i.ranks])),
             **i.speed_up.columns("speedup"), **i.marginal.columns("marginal"),
             **i.gpu_hours.columns("hours")}
            for i in found
        ]  # fmt: skip
        if not isinstance(best := recommend(found), Refusal):
            ends = f"{best.most} is the largest count measured" if best.ends else None
            estimate = Estimate(best.ranks, best.least, best.most, len(own), ends)
            worth.append(named | estimate.columns("gpus"))
        timed = by_ranks(own[own["step_s"].notna()], "step_s")
        if len(timed) >= _LEAST_COUNTS:
            laws.append({**named, "n": len(timed), **_law(fit_laws(timed, named["scaling"]))})
    of_steps, of_worth = _steps(runs), _worth(runs)
    return Increases(
        Table("increases", "What more ranks gave", of_steps,
              in_order(frame(steps, of_steps), techniques)),
        Table("recommended", "How many are worth it", of_worth,
              in_order(frame(worth, of_worth), techniques)),
        Table("laws", "Laws of the step time", _LAWS, in_order(frame(laws, _LAWS), techniques),
              intro="Both are fitted to the mean step of each count, with errors as shares of it. "
              "Serial share s: efficiency = 1 / (1 + s (k - 1)) on k ranks (Amdahl 1967). "
              "Communication: step = a + c log2 k + d (k - 1) / k, a tree's messages and a ring's "
              "bytes; a / k under strong scaling."),
    )  # fmt: skip


def by_ranks(runs: pd.DataFrame, name: str) -> dict[int, list[float]]:
    """Values of the runs of one series, by rank count."""
    found: dict[int, list[float]] = {}
    for ranks, value in zip(runs["gpus"].tolist(), runs[name].tolist(), strict=True):
        found.setdefault(ranks, []).append(value)
    return dict(sorted(found.items()))


def worth_in_words(row: Row) -> str:
    """``4``, or ``2 (1 to 4)`` where the intervals leave it open."""
    found = estimate_in(row, "gpus")
    return count(found.value) if found.low == found.high else found.text(count)


def _law(found: Laws) -> Row:
    amdahl, communication = found.amdahl, found.communication
    share = Estimate(None, note=amdahl.reason if isinstance(amdahl, Refusal) else None)
    if isinstance(amdahl, Law):
        share = amdahl.serial_share or Estimate(None, note="all of the step is serial")
    row = share.columns("serial_share")
    for name, law in (("amdahl", amdahl), ("communication", communication)):
        row[f"{name}_off"] = law.left_out if isinstance(law, Law) else None
        row[f"{name}_off_note"] = law.reason if isinstance(law, Refusal) else None
    return row


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
               "its 95 % t interval", format=number(2), estimate=True),
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


def _off(name: str, heading: str, description: str) -> tuple[Column, Column]:
    return (
        Column(name, "Float64", heading, description, format=percent, note=f"{name}_note"),
        Column(f"{name}_note", "string"),
    )


_LAWS: tuple[Column, ...] = (
    *SERIES,
    Column("global_batch", "Int64"),
    Column("n", "Int64", "counts", "of ranks that were measured"),
    Column("serial_share", "Float64", "serial share", "s, with its 95 % t interval",
           format=number(4), estimate=True),
    *_off("amdahl_off", "its error", "at a count that was left out of the fit: root mean square "
          "over the counts"),
    *_off("communication_off", "error of the communication law", "likewise"),
)  # fmt: skip
