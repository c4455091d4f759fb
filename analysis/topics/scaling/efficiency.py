"""How throughput grows with ranks: speed-up and efficiency against the smallest count measured.

Efficiency = throughput(n) / (n / n0 x throughput(n0)). The baseline n0 is a run of the same
technique and settings on the same device with the same batch per rank (weak scaling) or the same
global batch (strong scaling), or there is no efficiency. Diverged runs stop early and are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import fmt
from analysis.records.columns import DTYPES, SHARED_CORES
from analysis.records.frames import in_order
from analysis.records.labels import without_scaling
from analysis.stats.differences import ratios
from analysis.stats.intervals import Moments, grouped_moments
from analysis.table import Column, Row, Table, estimate_in, estimates_as, frame
from analysis.topics.names import joined_by, over_completed, ranks_column
from analysis.topics.scaling.series import SAME, SERIES, by_series
from analysis.topics.topic import Rows, Sweep, reference_technique

Places = NDArray[np.integer[Any]]
NO_BASELINE = (
    "no baseline: no other rank count was measured with the same technique and settings, data, "
    "model, device and batch"
)
_ENDS = ("value", "low", "high")


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    several = runs["gpus"].nunique() > 1  # of one count nothing is known of the last three
    return (
        *SERIES,
        *(Column(name, DTYPES[name]) for name in SAME if name != "scaling"),
        Column("global_batch", "Int64", "global batch", "images of a step, over all ranks and "
               "accumulated batches", only_if_varied=True),
        ranks_column(runs),
        Column("nodes", "string", "nodes", only_if_varied=True),
        Column("n", "Int64", "runs", "completed, with a throughput"),
        Column("images_per_s", "Float64", "images/s", "images really processed per second of "
               "training, all ranks together, steady state (median over epochs, the first one left "
               "out): geometric mean over completed runs, with the 95 % t interval of the "
               "logarithm", format=fmt.significant, estimate=True),
        Column("n0", "Int64", "baseline", "smallest rank count measured with the same technique "
               "and settings, data, model, device and batch", only_if_varied=True),
        Column("speedup", "Float64", "speed-up" if several else "", "over the baseline; ratio of "
               "geometric means", estimate=True, cell=lambda row: fmt.TWO(row["speedup"])),
        Column("efficiency", "Float64", "efficiency" if several else "", "throughput(n) / (n / n0 "
               "x throughput(n0)), with the 95 % t interval of the log ratio; the baseline's own "
               "spread is in it", estimate=True,
               cell=lambda row: estimate_in(row, "efficiency").text(fmt.TWO)
               + " (baseline)" * (row["gpus"] == row["n0"])),
        Column("before", "Int64"),
        Column("marginal", "Float64", "throughput gained" if several else "", "by each rank added "
               "to the next smaller count, as a share of the throughput of one there; 100 % is "
               "perfect scaling", estimate=True, cell=lambda row: "" if row["gpus"] == row["n0"]
               else estimate_in(row, "marginal").text(fmt.percent)),
    )  # fmt: skip


def throughputs(of: Sweep) -> Table:
    """One row per (series, ranks)."""
    made = columns(of.runs)
    data = in_order(frame(_rows(of.made(by_series)), made), of.order)
    return Table("scaling", "Throughput against ranks", made, data)


def chosen(of: Sweep) -> tuple[Row | None, Rows]:
    """What the first screen tells of: the row at the most ranks, of the reference, since no test
    says which series scales best; None where no efficiency is known. And all rows with one."""
    known = [row for row in of.rows(throughputs) if row["efficiency"] is not None]
    more = [row for row in known if row["gpus"] != row["n0"]]
    reference = reference_technique(of.order)
    one = max(more, key=lambda row: (row["gpus"], row["technique"] == reference), default=None)
    return one, known


def _rows(runs: pd.DataFrame) -> dict[str, Any]:
    """Columns of the table, from the runs with their ``series``."""
    rows = runs.groupby(["series", "gpus"]).ngroup().to_numpy()
    first = runs.assign(row=rows).drop_duplicates("row").sort_values("row", ignore_index=True)
    done = (runs["status"] == "completed").to_numpy(bool)
    rate = over_completed(runs, "images_per_s", rows, len(first), "positive")
    logs = grouped_moments(
        np.log(runs["images_per_s"].where(done).to_numpy(float, na_value=np.nan)), rows, len(first)
    )
    base = _baselines(first, rate["n"])
    n0 = first["gpus"].array.take(base)
    shared = runs["oversubscribed"].groupby(rows).any().to_numpy(bool)
    counts = (rate["n"] > 0).groupby(first["series"]).transform("sum")
    why = np.select(
        [rate["n"] == 0, shared, shared[base], counts == 1],
        [rate["note"], SHARED_CORES, [f"the baseline's {n} ranks share cores" for n in n0],
         NO_BASELINE],
        np.array(None),
    )  # fmt: skip
    there = pd.isna(why)
    speedup = _over(logs, base, why)
    part = (n0 / first["gpus"].array).to_numpy(float)
    efficiency = speedup.assign(**{end: speedup[end] * part for end in _ENDS})
    # the next smaller count with an efficiency; NaN of none
    known = pd.Series(first.index, dtype=float).where(there).groupby(first["series"]).ffill()
    before = known.groupby(first["series"]).shift().where(there)
    more = first["gpus"].to_numpy(float) / first["gpus"].reindex(before).to_numpy(float)
    gain = _over(logs, before.fillna(pd.Series(first.index)).astype(int).to_numpy(), why)
    marginal = gain.assign(**{end: (gain[end] - 1) / (more - 1) for end in _ENDS})
    nodes = runs["nodes"].groupby(rows).agg(["min", "max"]).itertuples(index=False)
    names = ("technique", "technique_label", "series", "batch_per_rank", "global_batch", *SAME,
             "gpus")  # fmt: skip
    return {
        **{name: first[name].array for name in names},
        # a row may hold runs of several lengths: steady-state throughput is the same for them
        "context": joined_by(runs["context"].map(without_scaling), rows, len(first)),
        "nodes": [str(low) if low == high else f"{low}-{high}" for low, high in nodes],
        "n": rate["n"],
        **estimates_as("images_per_s", rate),
        "n0": pd.Series(n0).where(there),
        **estimates_as("speedup", speedup),
        **estimates_as("efficiency", efficiency),
        "before": first["gpus"].reindex(before).array,
        **estimates_as("marginal", marginal),
    }


def _baselines(rows: pd.DataFrame, n: pd.Series[int]) -> Places:
    """Of each row, by series and ranks, the first of its series with a throughput; of a series
    without one, the row itself."""
    place = pd.Series(rows.index, dtype=float)
    return place.where(n > 0).groupby(rows["series"]).transform("min").fillna(place).to_numpy(int)


def _over(logs: Moments, base: Places, why: NDArray[Any]) -> pd.DataFrame:
    """The throughput of each row over that of its base, as the parts of an Estimate; ``why``: the
    reason where there is none, else None."""
    found = ratios(logs, logs.at(base))
    there, itself = pd.isna(why), base == found.index
    # a baseline is once as fast as itself, without error
    return pd.DataFrame(
        {
            "value": found["value"].mask(itself, 1.0).where(there),
            "low": found["low"].where(there & ~itself),
            "high": found["high"].where(there & ~itself),
            "n": found["n"].mask(itself, pd.Series(logs.n.astype(int))).where(there, 0),
            "note": np.where(there, found["note"].mask(itself, None), why),
        }
    )
