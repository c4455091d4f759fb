"""How throughput grows with ranks: speed-up and efficiency against the smallest count measured.

Efficiency = throughput(n) / (n / n0 x throughput(n0)). The baseline n0 is a run of the same
technique and settings on the same device with the same batch per rank (weak scaling) or the same
global batch (strong scaling), or there is no efficiency. Diverged runs stop early and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.records.columns import SHARED_CORES
from analysis.records.frames import in_order
from analysis.records.labels import without_scaling
from analysis.stats.differences import ratio
from analysis.stats.intervals import mean
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
    significant,
)
from analysis.topics.topic import NAMES, ranks_column, reasons

#: What must be equal for one rank count to be the baseline of another, beside settings and batch.
SAME = ("dataset", "image_size", "model", "pretrained", "data_fraction", "partition", "framework",
        "deterministic", "accumulation", "scaling", "device_kind", "device")  # fmt: skip
_TYPES: dict[str, Any] = {
    "image_size": "Int64", "data_fraction": "Float64", "deterministic": "boolean",
    "accumulation": "Int64",
}  # fmt: skip
SHARES = ("communication_share", "input_share")
_NEEDED = (
    "cell_id", "status", "technique", "technique_label", "technique_settings", "context", *SAME,
    "cores_per_rank", "gpus", "batch_per_rank", "global_batch", "nodes", "images_per_s",
    "images_per_s_why", "oversubscribed", "end_to_end_s", "epochs", "attempts", *SHARES,
    "step_shares_why",
)  # fmt: skip


def mode(row: Row) -> str:
    """Weak or strong scaling, with the batch that is fixed."""
    weak = row["scaling"] == "weak"
    batch = row["batch_per_rank"] if weak else row["global_batch"]
    return f"weak, {count(batch)} a rank" if weak else f"strong, {count(batch)}"


#: What names a series; see :func:`about`. A global batch belongs to it, too.
SERIES: tuple[Column, ...] = (
    *NAMES,
    Column("series", "Int64"),
    Column("scaling", "string", "mode", "weak: the batch per rank is fixed; strong: the global "
           "batch is", cell=mode),
    Column("batch_per_rank", "Int64"),
)  # fmt: skip


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    rate, share = significant, number(2)
    return (
        *SERIES,
        *(Column(name, _TYPES.get(name, "string")) for name in SAME if name != "scaling"),
        Column("global_batch", "Int64", "global batch", "images of a step, over all ranks and "
               "accumulated batches", only_if_varied=True),
        Column("cores_per_rank", "Int64"),
        ranks_column(runs),
        Column("nodes", "string", "nodes", only_if_varied=True),
        Column("n", "Int64", "runs", "completed, with a throughput"),
        Column("n_diverged", "Int64"),
        Column("images_per_s", "Float64", "images/s", "images really processed per second of "
               "training, all ranks together, steady state (median over epochs, the first one left "
               "out): geometric mean over completed runs, with the 95 % t interval of the "
               "logarithm", format=rate, estimate=True),
        Column("n0", "Int64", "baseline", "smallest rank count measured with the same technique "
               "and settings, data, model, device and batch", only_if_varied=True),
        Column("speedup", "Float64", "speed-up", "over the baseline; ratio of geometric means",
               format=share, estimate=True, cell=lambda row: share(row["speedup"])),
        Column("efficiency", "Float64", "efficiency", "throughput(n) / (n / n0 x throughput(n0)), "
               "with the 95 % t interval of the log ratio; the baseline's own spread is in it",
               format=share, estimate=True, cell=_efficiency),
        Column("end_to_end_s", "Float64", "end to end s", "from the first start of a run to its "
               "end, with start-up, compilation and validation, without the time between an "
               "interruption and the next start: mean over completed runs", estimate=True,
               cell=lambda row: rate(row["end_to_end_s"])),
        Column("communication_share", "Float64", "all-reduce", "share of a steady step that waits "
               "for the all-reduce, and so for slower ranks, where no computing overlaps it: mean "
               "over ranks and runs", format=percent, note="step_shares_note"),
        Column("input_share", "Float64", "input wait", "share of a steady step that waits for the "
               "next batch", format=percent, note="step_shares_note"),
        Column("step_shares_note", "string"),
        Column("oversubscribed", "boolean"),
        Column("cells", "string"),
    )  # fmt: skip


def table(runs: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """One row per (series, ranks)."""
    # of a frame of ninety columns each cut would copy all
    marked = runs[list(_NEEDED)].assign(series=series(runs))
    rows = []
    for _, group in marked.groupby("series", sort=False):
        done = measured(group)
        counts = sorted(set(done["gpus"]))
        base = done[done["gpus"] == counts[0]] if counts else None
        rows += [_row(own, base, counts, marked) for _, own in group.groupby("gpus")]
    made = columns(runs)
    return Table(
        "scaling",
        "Throughput against ranks",
        made,
        in_order(frame(rows, made), techniques),
    )


def series(runs: pd.DataFrame) -> pd.Series[Any]:
    """Per run the number of its series: runs that only ranks, nodes and seeds tell apart. Runs
    that have the column keep it."""
    if "series" in runs:
        return runs["series"]
    weak = runs["scaling"] == "weak"
    same = runs[[*SAME, "technique_settings"]].assign(
        batch=runs["batch_per_rank"].where(weak, runs["global_batch"]),
        # a GPU does the work wherever its host's cores are; without one the cores do it
        cores=runs["cores_per_rank"].where(runs["device_kind"] == "cpu"),
    )
    return same.groupby(list(same), sort=False, dropna=False, observed=True).ngroup()


def measured(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that completed, with a throughput."""
    return runs[(runs["status"] == "completed") & runs["images_per_s"].notna()]


def _row(
    group: pd.DataFrame, base: pd.DataFrame | None, counts: Sequence[int], everything: pd.DataFrame
) -> dict[str, Any]:
    first, timed = group.iloc[0], measured(group)
    survivors = group[group["status"] == "completed"]
    rates = timed["images_per_s"].tolist()
    n0 = counts[0] if counts else None
    why = _no_efficiency(group, base, counts, everything)
    speedup = Estimate(None, note=why)
    if why is None and base is not None:
        is_base = int(first["gpus"]) == n0
        speedup = (
            Estimate(1.0, n=len(rates))
            if is_base
            else ratio(rates, base["images_per_s"].tolist()).estimate
        )
    return {
        **about(group),
        **{name: first[name] for name in (*SAME, "cores_per_rank", "gpus")},
        "nodes": _range(group["nodes"]),
        "n": len(rates),
        "n_diverged": len(group) - len(survivors),
        **_rate(rates, group, survivors).columns("images_per_s"),
        "n0": n0 if why is None else None,
        **speedup.columns("speedup"),
        **scaled(speedup, n0 / int(first["gpus"]) if n0 else 1.0).columns("efficiency"),
        **_end_to_end(survivors).columns("end_to_end_s"),
        **{name: survivors[name].astype("Float64").mean() for name in SHARES},
        "step_shares_note": reasons(survivors["step_shares_why"]),
        "oversubscribed": bool(group["oversubscribed"].any()),
        "cells": " ".join(group["cell_id"]),
    }  # fmt: skip


def about(group: pd.DataFrame) -> Row:
    """What names a series, from its runs."""
    names = ("technique", "technique_label", "series", "scaling", "batch_per_rank", "global_batch")
    return {
        **{name: group.iloc[0][name] for name in names},
        # a row may hold runs of several lengths: steady-state throughput is the same for them
        "context": reasons(map(without_scaling, group["context"].drop_duplicates())) or "",
    }


def scaled(found: Estimate, by: float) -> Estimate:
    """The estimate of a quantity that is ``by`` times this one."""
    value, low, high = (None if x is None else x * by for x in found[:3])
    return found._replace(value=value, low=low, high=high)


def _rate(rates: Sequence[float], group: pd.DataFrame, survivors: pd.DataFrame) -> Estimate:
    found = mean(rates, "positive")
    if not found.n:
        return found._replace(note=_no_rate(group))
    if found.n < len(survivors):
        lacking = f"{len(survivors) - found.n} of {len(survivors)} runs lack the value"
        return found._replace(note=reasons([found.note, lacking]))
    return found


def _no_efficiency(
    group: pd.DataFrame, base: pd.DataFrame | None, counts: Sequence[int], everything: pd.DataFrame
) -> str | None:
    """Why this row has neither speed-up nor efficiency; None when it has both."""
    if not len(measured(group)) or base is None:
        return _no_rate(group)
    if group["oversubscribed"].any():
        return SHARED_CORES
    if base["oversubscribed"].any():
        return f"the baseline's {counts[0]} ranks share cores"
    return None if len(counts) > 1 else _alone(group.iloc[0], everything)


def _alone(row: pd.Series[Any], everything: pd.DataFrame) -> str:
    """Why no other rank count can be compared with this row."""
    others = everything[
        (everything["technique"] == row["technique"])
        & (everything["gpus"] != row["gpus"])
        & (everything["status"] == "completed")
    ]
    if not len(others):
        return "only one rank count measured"
    batch = "batch_per_rank" if row["scaling"] == "weak" else "global_batch"
    names = [*SAME, batch, "technique_settings"]
    names += ["cores_per_rank"] if row["device_kind"] == "cpu" else []
    differing = [name for name in names if not (others[name] == row[name]).fillna(False).any()]
    found = ", ".join(name.replace("_", " ") for name in differing if not pd.isna(row[name]))
    return f"no baseline: the runs on other rank counts differ in {found or 'their settings'}"


def _no_rate(group: pd.DataFrame) -> str:
    survivors = group[group["status"] == "completed"]
    if not len(survivors):
        return f"all {len(group)} runs diverged" if len(group) > 1 else "the only run diverged"
    return reasons(survivors["images_per_s_why"]) or "the records do not have it"


def _end_to_end(survivors: pd.DataFrame) -> Estimate:
    if survivors["epochs"].nunique() > 1:
        return Estimate(None, note="the runs differ in epochs")
    found = mean(survivors["end_to_end_s"].dropna().tolist())
    restarted = int((survivors["attempts"] > 1).sum())
    note = f"{restarted} of {len(survivors)} runs were restarted" if restarted else None
    return found._replace(note=reasons([found.note, note]))


def _efficiency(row: Row) -> str:
    shown = estimate_in(row, "efficiency").text(number(2))
    return f"{shown} (baseline)" if row["gpus"] == row["n0"] else shown


def _range(column: pd.Series[Any]) -> str:
    low, high = column.min(), column.max()
    return str(low) if low == high else f"{low}-{high}"
