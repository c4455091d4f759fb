"""How throughput grows with ranks: speed-up and efficiency against the smallest count measured.

Efficiency = throughput(n) / (n / n0 x throughput(n0)). The baseline n0 is a run of the same
technique and settings on the same device with the same batch per rank (weak scaling) or the same
global batch (strong scaling), or there is no efficiency. Diverged runs stop early and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.frames import frame, in_order, values, why_incomplete
from analysis.labels import key, without_scaling
from analysis.stats import Ratio, geometric_mean, mean_t, ratio_t

SHARED_CORES = "ranks share cores: not a scaling figure"
BASELINE = "baseline"
_TEXT, _INT, _REAL, _BOOL = "string", "Int64", "Float64", "boolean"
COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "dataset": _TEXT,
    "image_size": _INT, "model": _TEXT, "pretrained": _TEXT, "data_fraction": _REAL,
    "partition": _TEXT, "framework": _TEXT, "deterministic": _BOOL, "accumulation": _INT,
    "scaling": _TEXT,
    "device_kind": _TEXT, "device": _TEXT, "cores_per_rank": _INT, "gpus": _INT, "nodes": _TEXT,
    "batch_per_rank": _INT, "global_batch": _INT, "n": _INT, "n_diverged": _INT,
    "images_per_s_mean": _REAL, "images_per_s_sd": _REAL, "images_per_s_half_width": _REAL,
    "images_per_s_geometric_mean": _REAL, "images_per_s_why": _TEXT, "n0": _INT, "speedup": _REAL,
    "speedup_low": _REAL, "speedup_high": _REAL, "efficiency": _REAL, "efficiency_low": _REAL,
    "efficiency_high": _REAL, "efficiency_why": _TEXT, "end_to_end_s_mean": _REAL,
    "end_to_end_s_sd": _REAL, "end_to_end_s_why": _TEXT, "communication_share": _REAL,
    "input_share": _REAL, "step_shares_why": _TEXT, "oversubscribed": _BOOL, "cells": _TEXT,
}  # fmt: skip
_SAME = ("dataset", "image_size", "model", "pretrained", "data_fraction", "partition", "framework",
         "deterministic", "accumulation", "scaling", "device_kind", "device")  # fmt: skip
_ABOUT = ("technique", "technique_label", "context", *_SAME, "cores_per_rank", "gpus",
          "batch_per_rank", "global_batch")  # fmt: skip


def scaling_table(runs: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """One row per (series, ranks); see COLUMNS."""
    marked = runs.assign(series=[series_of(run) for _, run in runs.iterrows()])
    rows = []
    for _, series in marked.groupby("series", sort=False):
        counts = sorted(set(_measured(series)["gpus"]))
        base = _measured(series[series["gpus"] == counts[0]]) if counts else None
        for _, group in series.groupby("gpus"):
            rows.append(_row(group, base, counts, marked))
    return in_order(frame(rows, COLUMNS), techniques)


def series_of(run: pd.Series[Any]) -> str:
    """What must be equal for one rank count to be the baseline of another."""
    batch = "batch_per_rank" if run["scaling"] == "weak" else "global_batch"
    same = {name: None if pd.isna(run[name]) else str(run[name]) for name in _SAME}
    # a GPU does the work wherever its host's cores are; without one the cores do it
    cores = int(run["cores_per_rank"]) if run["device_kind"] == "cpu" else None
    settings = run["technique_settings"]
    return key({**same, "settings": settings, "batch": int(run[batch]), "cores": cores})


def _measured(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[(runs["status"] == "completed") & runs["images_per_s"].notna()]


def _row(
    group: pd.DataFrame, base: pd.DataFrame | None, counts: Sequence[int], everything: pd.DataFrame
) -> dict[str, Any]:
    first, measured = group.iloc[0], _measured(group)
    survivors = group[group["status"] == "completed"]
    rates = values(measured["images_per_s"])
    mean = mean_t(rates)
    shared = bool(group["oversubscribed"].any())
    n0 = counts[0] if counts else None
    why = _no_efficiency(group, base, counts, everything)
    ratio = Ratio(None, None, None, why)
    if why is None and base is not None:
        is_base = int(first["gpus"]) == n0
        ratio = Ratio(1.0, None, None, BASELINE) if is_base else _speedup(rates, base)
    ideal = int(first["gpus"]) / n0 if n0 else None
    return {
        **{name: first[name] for name in _ABOUT},
        # a row may hold runs of several lengths: steady-state throughput is the same for them
        "context": "; ".join(dict.fromkeys(map(without_scaling, group["context"]))),
        "nodes": _range(group["nodes"]),
        "n": mean.n,
        "n_diverged": len(group) - len(survivors),
        "images_per_s_mean": mean.mean,
        "images_per_s_sd": mean.sd,
        "images_per_s_half_width": mean.half_width,
        "images_per_s_geometric_mean": geometric_mean(rates),
        "images_per_s_why": why_incomplete(mean, len(survivors)) if mean.n else _no_rate(group),
        "n0": n0 if why is None else None,
        **_scaled("speedup", ratio, 1.0),
        **_scaled("efficiency", ratio, ideal),
        "efficiency_why": ratio.why,
        **_end_to_end(survivors),
        **_shares(survivors),
        "oversubscribed": shared,
        "cells": " ".join(group["cell_id"]),
    }


def _speedup(rates: Sequence[float], base: pd.DataFrame) -> Ratio:
    return ratio_t(rates, values(base["images_per_s"]))


def _scaled(name: str, ratio: Ratio, by: float | None) -> dict[str, float | None]:
    found = (("", ratio.value), ("_low", ratio.low), ("_high", ratio.high))
    return {f"{name}{part}": None if v is None or by is None else v / by for part, v in found}


def _no_efficiency(
    group: pd.DataFrame, base: pd.DataFrame | None, counts: Sequence[int], everything: pd.DataFrame
) -> str | None:
    """Why this row has neither speed-up nor efficiency; None when it has both."""
    if not len(_measured(group)) or base is None:
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
    names = [*_SAME, batch, "technique_settings"]
    names += ["cores_per_rank"] if row["device_kind"] == "cpu" else []
    differing = [name for name in names if not (others[name] == row[name]).fillna(False).any()]
    found = ", ".join(name.replace("_", " ") for name in differing if not pd.isna(row[name]))
    return f"no baseline: the runs on other rank counts differ in {found or 'their settings'}"


def _no_rate(group: pd.DataFrame) -> str:
    survivors = group[group["status"] == "completed"]
    if not len(survivors):
        return f"all {len(group)} runs diverged" if len(group) > 1 else "the only run diverged"
    return "; ".join(dict.fromkeys(survivors["images_per_s_why"].dropna()))


def _end_to_end(survivors: pd.DataFrame) -> dict[str, Any]:
    """From the first start to the end of a run, restarts and the waiting between them included."""
    found = mean_t(values(survivors["end_to_end_s"]))
    why = found.why
    if survivors["epochs"].nunique() > 1:
        found, why = mean_t([]), "the runs differ in epochs"
    restarted = int((survivors["attempts"] > 1).sum())
    if restarted:
        note = f"{restarted} of {len(survivors)} runs were restarted"
        why = f"{why}; {note}" if why else note
    return {
        "end_to_end_s_mean": found.mean,
        "end_to_end_s_sd": found.sd,
        "end_to_end_s_why": why,
    }


def _shares(survivors: pd.DataFrame) -> dict[str, Any]:
    """Mean share of a steady step spent waiting for the all-reduce and for input."""
    row: dict[str, Any] = {
        name: mean_t(values(survivors[name])).mean
        for name in ("communication_share", "input_share")
    }
    reasons = dict.fromkeys(survivors["step_shares_why"].dropna())
    row["step_shares_why"] = "; ".join(reasons) if reasons else None
    return row


def _range(column: pd.Series[Any]) -> str:
    low, high = column.min(), column.max()
    return str(low) if low == high else f"{low}-{high}"
