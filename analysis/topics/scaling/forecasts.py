"""What the next two doublings would give. A model; see :mod:`analysis.prediction.forecast`."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.prediction.collectives import Link, ring
from analysis.prediction.forecast import UNTRIED, Forecast, forecast
from analysis.prediction.step_model import AllReduce, measured_counts
from analysis.records.frames import in_order
from analysis.table import (
    Column,
    Estimate,
    Row,
    Table,
    count,
    frame,
    number,
    percent,
    plain_rows,
    signed_percent,
    significant,
    types,
)
from analysis.topics.names import ranks_column
from analysis.topics.scaling.efficiency import throughputs
from analysis.topics.scaling.loss import timed
from analysis.topics.scaling.series import SERIES, by_series
from analysis.topics.topic import Sweep

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
    for series, own in used.groupby("series", sort=False):
        named, reduce = names[series], _all_reduce(own, of.network)
        made = forecast(measured_counts(own), named["scaling"], reduce)
        if made.refused == UNTRIED:
            continue
        stalls = [text for (one, _), text in of.made(uneven).items() if one == series]
        if made.points and stalls:
            made = made._replace(points=(), refused=stalls[-1])
        by_network |= reduce is not None
        rows += _rows(named, made)
    columns = _columns(runs)
    return Table(
        "forecast", "The next two doublings, by a model", columns,
        in_order(frame(rows, columns), of.order),
        intro="The measured parts of a step, continued: computing and input as they are, the "
        "all-reduce by the model of the network. Each rank is delayed at random, and a step waits "
        "for the longest delay. "
        "The network is "
        + ("that of the interconnect run beside the sweep."
           if by_network
           else "as training shows it: no usable interconnect run of these nodes lies beside the "
           "sweep."),
    )  # fmt: skip


def uneven(of: Sweep) -> dict[tuple[int, int], str]:
    """Of each series and rank count whose throughput the median step does not stand for: why. Of
    the throughput that the median step gives, compared with that on the fewest ranks."""
    runs = timed(of.made(by_series))
    share = runs["step_s"] * runs["images_per_s"] / runs["global_batch"]
    found = share.groupby([runs["series"], runs["gpus"]]).median().dropna().reset_index(name="of")
    first = found.groupby("series")[["gpus", "of"]].transform("first")
    found = found.assign(fewest=first["gpus"], of=found["of"] / first["of"])
    return {
        (row["series"], row["gpus"]):
            f"compared with {row['fewest']}, {row['gpus']} ranks have {percent(row['of'])} of the "
            "throughput that the median step gives: what makes other steps "
            f"{'longer' if row['of'] < 1 else 'shorter'} is in no model"
        for row in plain_rows(found[abs(found["of"] - 1) > MOST_UNEVEN])
    }  # fmt: skip


def _all_reduce(runs: pd.DataFrame, network: Link | None) -> AllReduce | None:
    """Seconds of the gradients by ranks; None where the network or their bytes are unknown."""
    sizes = runs["gradient_bytes"]
    if network is None or sizes.isna().any():
        return None
    size = float(sizes.median())
    return lambda ranks: ring(ranks, size).seconds(network)


def _rows(named: Row, found: Forecast) -> list[Row]:
    last = found.held_out[-1] if found.held_out else None
    row = {
        **{name: named[name] for name in (*types(SERIES), "global_batch")},
        "fitted_on": ", ".join(map(count, found.fitted_on)),
        "hold_out": last.error if last else None,
        "hold_out_ranks": last.ranks if last else None,
        "why": found.refused,
    }
    if found.refused is not None:
        none = Estimate(None, note=found.refused)
        return [row | none.columns("step_s") | none.columns("efficiency")]
    return [
        row | {"gpus": ranks} | step.columns("step_s") | efficiency.columns("efficiency")
        for ranks, step, efficiency in found.points
    ]


def _columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    return (
        *SERIES,
        Column("global_batch", "Int64"),
        Column("fitted_on", "string", "measured on", "rank counts"),
        replace(ranks_column(runs), only_if_varied=False),
        Column("step_s", "Float64", "step", "with its 95 % interval: from what the model was off "
               "at counts that were left out, wider with each doubling", "s", significant,
               estimate=True),
        Column("efficiency", "Float64", "efficiency", "against the smallest measured count",
               format=number(2), estimate=True),
        Column("hold_out", "Float64", "hold-out error", "predicted / measured - 1 at the largest "
               "measured count, fitted to the smaller ones", format=signed_percent),
        Column("hold_out_ranks", "Int64"),
        Column("why", "string"),
    )  # fmt: skip
