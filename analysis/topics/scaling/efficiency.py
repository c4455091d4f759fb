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
from analysis.stats.differences import ratios
from analysis.stats.intervals import Moments, grouped_moments
from analysis.table import Column, Table, estimate_in, estimates_as, frame
from analysis.topics.names import mode, namer, over_completed, ranks_column, ranks_text
from analysis.topics.scaling.series import DEVICE, NO_RUN, SAME, SERIES, Series, by_series
from analysis.topics.topic import Sweep, groups, reference_technique

Places = NDArray[np.integer[Any]]
NO_BASELINE = (
    "no baseline: no other rank count was measured with the same technique and settings, data, "
    "model, device and batch"
)
ONE_EPOCH = "throughput leaves out the first epoch of a run, and these have one: train 2 or more"
_ENDS = ("value", "low", "high")


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    several = runs["gpus"].nunique() > 1  # of one count nothing is known of the last three
    return (
        *SERIES,
        *(Column(name, DTYPES[name]) for name in (*SAME, *DEVICE) if name != "scaling"),
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
    """One row per (series, ranks); within a series ranks rise."""
    runs = of.made(by_series)
    made = columns(runs)
    data = in_order(frame(_rows(runs), made), of.order)
    return Table("scaling", "Throughput against ranks", made, data)


def every_series(of: Sweep) -> list[Series]:
    """Of each workload, mode and device with several planned rank counts the series of the
    reference, since no test says which technique scales best; that with most ranks is the first."""
    runs, reference = of.made(by_series), reference_technique(of.order)
    planned = dict(zip(runs["series"], runs["planned"], strict=True))
    tables = [rows for rows in groups(of.rows(throughputs), ("series",))
              if len(planned[rows[0]["series"]]) > 1]  # fmt: skip
    name = namer([row for rows in tables for row in rows])
    every = []
    for rows in tables:
        counts = planned[rows[0]["series"]]
        missing = dict.fromkeys(counts, NO_RUN)
        for row in rows:
            missing[row["gpus"]] = row["efficiency_note"]
            if row["efficiency"] is not None or row["efficiency_note"] == NO_BASELINE:
                del missing[row["gpus"]]
        every.append(Series(rows, counts[0], missing, name(rows[0]) if tables[1:] else ""))
    every.sort(key=lambda one: (one.most, one.rows[0]["technique"] == reference), reverse=True)
    kinds: dict[tuple[str, str], Series] = {}
    for one in every:
        kinds.setdefault((one.rows[0]["context"], mode(one.rows[0])), one)
    return [*kinds.values()]


def _rows(runs: pd.DataFrame) -> dict[str, Any]:
    """Columns of the table, from the runs with their ``series``."""
    rows = runs.groupby(["series", "gpus"]).ngroup().to_numpy()
    first = runs.assign(row=rows).drop_duplicates("row").sort_values("row", ignore_index=True)
    done = (runs["status"] == "completed").to_numpy(bool)
    rate = over_completed(runs, "images_per_s", rows, len(first), "positive")
    logs = grouped_moments(
        np.log(runs["images_per_s"].where(done).to_numpy(float, na_value=np.nan)), rows, len(first)
    )
    # of each row the first of its series with a throughput; of a series without one, the row itself
    place = pd.Series(first.index, dtype=float)
    smallest = place.where(rate["n"] > 0).groupby(first["series"]).transform("min")
    base: Places = smallest.fillna(place).to_numpy(int)
    n0 = first["gpus"].array.take(base)
    shared = runs["oversubscribed"].groupby(rows).any().to_numpy(bool)
    counts = (rate["n"] > 0).groupby(first["series"]).transform("sum")
    one_epoch = (
        runs["epochs_run"].where(done).groupby(rows).max().eq(1).fillna(False).to_numpy(bool)
    )
    why = np.select(
        [(rate["n"] == 0) & one_epoch, rate["n"] == 0, shared, shared[base], counts == 1],
        [ONE_EPOCH, rate["note"], SHARED_CORES,
         [f"the baseline's {n} ranks share cores" for n in n0], NO_BASELINE],
        np.array(None),
    )  # fmt: skip
    there = pd.isna(why)
    planned = np.array([counts[0] for counts in first["planned"]], int)
    moved = there & (base == first.index) & (planned < np.asarray(n0, int))
    speedup = _over(logs, base, why)
    part = (n0 / first["gpus"].array).to_numpy(float)
    efficiency = speedup.assign(
        **{end: speedup[end] * part for end in _ENDS},
        note=np.where(moved, [f"the planned baseline is {ranks_text(n)}" for n in planned],
                      speedup["note"]),
    )  # fmt: skip
    # the next smaller count with an efficiency; NaN of none
    known = place.where(there).groupby(first["series"]).ffill()
    before = known.groupby(first["series"]).shift().where(there)
    more = first["gpus"].to_numpy(float) / first["gpus"].reindex(before).to_numpy(float)
    gain = _over(logs, before.fillna(place).to_numpy(int), why)
    marginal = gain.assign(**{end: (gain[end] - 1) / (more - 1) for end in _ENDS})
    nodes = runs["nodes"].groupby(rows).agg(["min", "max"]).itertuples(index=False)
    names = ("technique", "technique_label", "series", "batch_per_rank", "global_batch", *SAME,
             *DEVICE, "gpus")  # fmt: skip
    return {
        **{name: first[name].array for name in names},
        "context": first["series_context"].array,
        "nodes": [str(low) if low == high else f"{low}-{high}" for low, high in nodes],
        "n": rate["n"],
        **estimates_as("images_per_s", rate),
        "n0": pd.Series(n0).where(there),
        **estimates_as("speedup", speedup),
        **estimates_as("efficiency", efficiency),
        "before": first["gpus"].reindex(before).array,
        **estimates_as("marginal", marginal),
    }


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
