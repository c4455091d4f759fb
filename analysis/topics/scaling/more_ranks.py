"""What would more ranks give? The next two doublings by a model; see
:mod:`analysis.prediction.forecast`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis import fmt
from analysis.prediction.collectives import Link, ring
from analysis.prediction.forecast import UNTRIED, Forecast, forecast
from analysis.prediction.step_model import AllReduce, measured_counts
from analysis.records.frames import in_order
from analysis.table import Column, Estimate, Row, Table, estimate_in, frame, plain_rows, types
from analysis.topics.names import ranks_column
from analysis.topics.scaling.efficiency import every_series, throughputs
from analysis.topics.scaling.loss import timed
from analysis.topics.scaling.series import SERIES, by_series
from analysis.topics.topic import Answer, Rows, Sweep, Topic

#: Median step and throughput may differ by this much more than on the fewest ranks.
MOST_UNEVEN = 0.1


def ahead(of: Sweep) -> Table:
    """A row per count ahead, or per series that has no forecast, with the reason; series have
    counts enough to try one on."""
    runs = of.made(by_series)
    used = timed(runs)
    used = used[used.groupby("series")["gpus"].transform("nunique") > 1]
    names = {row["series"]: row for row in reversed(of.rows(throughputs))}
    rows: list[Row] = []
    by_network = False
    # counts rise, so that of several the most ranks' stays
    stalls: dict[Any, str] = {series: why for (series, _), why in of.made(uneven).items()}
    for series, own in used.groupby("series", sort=False):
        first, reduce = names[series], _all_reduce(own, of.network)
        made = forecast(measured_counts(own), first["scaling"], reduce)
        if made.refused == UNTRIED:
            continue
        if made.points and series in stalls:
            made = made._replace(points=(), refused=stalls[series])
        by_network |= reduce is not None
        rows += _rows(first, made)
    columns = _columns(runs)
    network = "an interconnect run of these nodes" if by_network else "the training itself"
    return Table(
        "forecast",
        "The next two doublings, by a model",
        columns,
        in_order(frame(rows, columns), of.order),
        intro="The measured parts of a step, continued: computing and input as they are, the "
        "all-reduce by the model of the network. Each rank is delayed at random, and a step waits "
        f"for the longest delay. The network is known from {network}.",
    )


def uneven(of: Sweep) -> dict[tuple[int, int], str]:
    """Why the median step of a series and rank count does not stand for its throughput, by these,
    where it does not: by the throughput that it gives, compared with that on the fewest ranks.
    Counts rise."""
    runs = timed(of.made(by_series))
    share = runs["step_s"] * runs["images_per_s"] / runs["global_batch"]
    found = share.groupby([runs["series"], runs["gpus"]]).median().dropna().reset_index(name="of")
    first = found.groupby("series")[["gpus", "of"]].transform("first")
    found = found.assign(fewest=first["gpus"], of=found["of"] / first["of"])
    return {
        (row["series"], row["gpus"]): (
            f"compared with {row['fewest']}, {row['gpus']} ranks have {fmt.percent(row['of'])} of "
            "the throughput that the median step gives: what makes other steps "
            f"{'longer' if row['of'] < 1 else 'shorter'} is in no model"
        )
        for row in plain_rows(found[abs(found["of"] - 1) > MOST_UNEVEN])
    }


def _all_reduce(runs: pd.DataFrame, network: Link | None) -> AllReduce | None:
    """Seconds of the gradients by ranks; None where the network or their bytes are unknown."""
    sizes = runs["gradient_bytes"]
    if network is None or sizes.isna().any():
        return None
    size = float(sizes.median())
    return lambda ranks: ring(ranks, size).seconds(network)


def _rows(first: Row, found: Forecast) -> list[Row]:
    row = {name: first[name] for name in (*types(SERIES), "global_batch")}
    row |= {"fitted_on": ", ".join(map(fmt.count, found.fitted_on)), "why": found.refused}
    if found.held_out:
        row |= {"hold_out": found.held_out[-1].error, "hold_out_ranks": found.held_out[-1].ranks}
    none = Estimate(None, note=found.refused)
    return [
        row | {"gpus": ranks} | step.columns("step_s") | efficiency.columns("efficiency")
        for ranks, step, efficiency in found.points or [(None, none, none)]
    ]


def _columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    return (
        *SERIES,
        Column("global_batch", "Int64"),
        Column("fitted_on", "string", "measured on", "rank counts"),
        replace(ranks_column(runs), only_if_varied=False),
        Column("step_s", "Float64", "step", "with its 95 % interval: from what the model was off "
               "at counts that were left out, wider with each doubling", "s", fmt.significant,
               estimate=True),
        Column("efficiency", "Float64", "efficiency", "against the smallest measured count",
               format=fmt.TWO, estimate=True),
        Column("hold_out", "Float64", "hold-out error", "predicted / measured - 1 at the largest "
               "measured count, fitted to the smaller ones", format=fmt.signed_percent),
        Column("hold_out_ranks", "Int64"),
        Column("why", "string"),
    )  # fmt: skip


def expected(of: Sweep) -> Iterable[Answer]:
    """The forecast of the first series that sentences are about."""
    for series in of.made(every_series)[:1]:
        further = [row for row in of.rows(ahead) if row["series"] == series.rows[0]["series"]]
        if series.most and (text := _expected(further, series.whose)):
            yield Answer("forecast", "What would more ranks give?", fmt.sentence(text),
                         "forecast", "forecast")  # fmt: skip


def _expected(further: Rows, whose: str) -> str:
    """The forecast with its error, or why there is none; empty where none could be tried."""
    if not further:
        return ""
    first = further[0]
    if first["efficiency"] is None:
        return f"no forecast{whose}: {first['why']}" if first["hold_out"] is not None else ""
    ends = (f"{estimate_in(row, 'efficiency').text(fmt.TWO)} at {row['gpus']}" for row in further)
    off = first["hold_out"]
    return (
        f"extrapolated{whose}, efficiency is {' and '.join(ends)} ranks (the step on "
        f"{first['hold_out_ranks']} ranks, extrapolated from fewer, comes out "
        f"{abs(100 * off):.1f} % too {'long' if off > 0 else 'short'})"
    )


TOPIC = Topic(tables=(ahead,), answers=(expected,))
