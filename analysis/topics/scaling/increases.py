"""What each increase of the ranks gave, and up to which count that was worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas as pd

from analysis.prediction import Refusal
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
    number,
    percent,
    signed_percent,
)
from analysis.topics.scaling.efficiency import OF_A_SERIES, SERIES, about, measured
from analysis.topics.topic import ranks_column


class Increases(NamedTuple):
    """steps: a row per measured count but the smallest. worth: a row per series."""

    steps: Table
    worth: Table


def tables(runs: pd.DataFrame, techniques: Sequence[str]) -> Increases:
    """Of completed runs whose ranks have cores of their own; ``runs`` with ``series``."""
    # of a frame of ninety columns each cut would copy all
    done = measured(runs)[[*OF_A_SERIES, "gpus", "oversubscribed", "images_per_s"]]
    done = done[~done["oversubscribed"].astype(bool)]
    counts = done.groupby("series")["gpus"].transform("nunique")
    steps: list[Row] = []
    worth: list[Row] = []
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
    of_steps, of_worth = _steps(runs), _worth(runs)
    return Increases(
        Table("increases", "What more ranks gave", of_steps,
              in_order(frame(steps, of_steps), techniques)),
        Table("recommended", "How many are worth it", of_worth,
              in_order(frame(worth, of_worth), techniques)),
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
