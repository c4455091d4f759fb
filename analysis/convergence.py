"""What scaling costs in convergence: one row per condition (all settings but the seed)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.frames import frame, in_order, values, why_incomplete
from analysis.stats import Mean, mean_t

_TEXT, _INT, _REAL, _BOOL = "string", "Int64", "Float64", "boolean"
ABOUT = (
    "technique", "technique_label", "context", "dataset", "image_size", "model", "pretrained",
    "data_fraction", "validate_on", "partition", "framework", "target", "deterministic", "scaling",
    "epochs", "gpus", "batch_per_rank", "accumulation", "global_batch", "changes_images",
)  # fmt: skip
#: column of the runs frame -> prefix of its statistics; over completed runs unless said
MEASURES = ("train_accuracy", "validation_accuracy", "scored_accuracy", "train_loss",
            "validation_loss", "train_s")  # fmt: skip
_STATISTICS = {"n": _INT, "mean": _REAL, "sd": _REAL, "half_width": _REAL, "why": _TEXT}
_EFFICIENCY = {"efficiency": _REAL, "efficiency_low": _REAL, "efficiency_high": _REAL,
               "efficiency_why": _TEXT}  # fmt: skip
COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "dataset": _TEXT,
    "image_size": _INT, "model": _TEXT, "pretrained": _TEXT, "data_fraction": _REAL,
    "validate_on": _TEXT, "partition": _TEXT, "framework": _TEXT, "target": _TEXT,
    "deterministic": _BOOL, "scaling": _TEXT, "epochs": _INT, "gpus": _INT, "batch_per_rank": _INT,
    "accumulation": _INT, "global_batch": _INT, "changes_images": _BOOL,
    "global_batch_last": _INT, "n": _INT, "n_diverged": _INT,
    "seeds": _TEXT, "steps": _INT, "steps_why": _TEXT, "chance": _REAL, "oversubscribed": _BOOL,
    **{f"{name}_{part}": kind for name in MEASURES for part, kind in _STATISTICS.items()},
    **_EFFICIENCY, "cells": _TEXT,
}  # fmt: skip


def convergence_table(
    runs: pd.DataFrame, techniques: Sequence[str], scaling: pd.DataFrame
) -> pd.DataFrame:
    """One row per condition; see COLUMNS. ``scaling``: the table of the same runs.

    ``scored_accuracy`` is over all runs, a diverged one counting as chance (1 / classes);
    every other measure is over the runs that completed. ``*_why`` says why an interval or a
    mean is null.
    """
    efficiency = {
        cell: {name: row[name] for name in _EFFICIENCY}
        for row in scaling.to_dict(orient="records")
        for cell in str(row["cells"]).split()
    }
    rows = [
        _row(group) | efficiency[group["cell_id"].iloc[0]]
        for _, group in runs.groupby("condition", sort=False)
    ]
    return in_order(frame(rows, COLUMNS), techniques)


def _row(group: pd.DataFrame) -> dict[str, Any]:
    survivors = group[group["status"] == "completed"]
    first = group.iloc[0]
    steps = sorted(set(survivors["steps"]))
    row: dict[str, Any] = {
        **{name: first[name] for name in ABOUT},
        "global_batch_last": group["global_batch_last"].max(),
        "n": len(group),
        "n_diverged": len(group) - len(survivors),
        "seeds": " ".join(str(seed) for seed in sorted(group["seed"])),
        "steps": steps[0] if len(steps) == 1 else None,
        "steps_why": _steps_why(steps, len(group)),
        "chance": first["chance"],
        "oversubscribed": bool(group["oversubscribed"].any()),
        "cells": " ".join(group["cell_id"]),
    }
    for name in MEASURES:
        of = group if name == "scored_accuracy" else survivors
        row |= _statistics(name, of, len(group))
    return row


def _statistics(name: str, runs: pd.DataFrame, planned: int) -> dict[str, Any]:
    found = mean_t(values(runs[name]))
    why = why_incomplete(found, len(runs)) if found.n else _nothing_why(name, runs, planned)
    return {f"{name}_{part}": value for part, value in _parts(found, why).items()}


def _parts(found: Mean, why: str | None) -> dict[str, Any]:
    return {
        "n": found.n,
        "mean": found.mean,
        "sd": found.sd,
        "half_width": found.half_width,
        "why": why,
    }


def _nothing_why(name: str, runs: pd.DataFrame, planned: int) -> str:
    if not len(runs):
        return f"all {planned} runs diverged" if planned > 1 else "the only run diverged"
    if f"{name}_why" in runs:
        return "; ".join(dict.fromkeys(runs[f"{name}_why"].dropna()))
    return "the records do not have it"


def _steps_why(steps: Sequence[int], planned: int) -> str | None:
    if not steps:
        return f"all {planned} runs diverged" if planned > 1 else "the only run diverged"
    return None if len(steps) == 1 else f"the runs differ: {steps[0]} to {steps[-1]}"
