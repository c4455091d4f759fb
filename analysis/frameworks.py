"""Does it matter which library averages the gradients? Throughput and accuracy of the same cell.

One comparison per cell and other framework, over its seeds. Throughput: ratio of geometric means,
Welch's t on logarithms. Accuracy: Welch's t, and two one-sided tests (Schuirmann 1987) of the
claim that it is the same to within MARGIN, fixed before any run. Equal seeds give equal first
weights and data, but rounding may part the runs after a few steps: they are not paired. Where it
does not, and all seeds end in the same numbers, the verdict says that.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.frames import frame, in_order, values
from analysis.labels import key, without_framework
from analysis.scaling import SHARED_CORES
from analysis.stats import (
    ALPHA,
    Ratio,
    equivalence_p,
    geometric_mean,
    holm,
    ratio_t,
    welch,
)

#: The first of these that ran a cell is what the others are compared with.
ORDER = ("horovod", "multi_worker_mirrored", "mirrored")
#: Accuracies that differ by less are the same for any use made of them here.
MARGIN = 0.01
#: What a run ends with.
_ENDS = ["train_loss", "train_accuracy", "scored_accuracy"]
_TEXT, _INT, _REAL = "string", "Int64", "Float64"
_ABOUT = ("technique", "technique_label", "context", "gpus", "batch_per_rank", "global_batch")
COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "reference": _TEXT,
    "framework": _TEXT, "gpus": _INT, "batch_per_rank": _INT, "global_batch": _INT,
    "n": _INT, "n_diverged": _INT, "n_reference": _INT, "n_diverged_reference": _INT,
    "images_per_s": _REAL, "images_per_s_reference": _REAL, "ratio": _REAL, "ratio_low": _REAL,
    "ratio_high": _REAL, "ratio_p": _REAL, "ratio_p_holm": _REAL, "ratio_why": _TEXT,
    "speed": _TEXT, "accuracy": _REAL, "accuracy_reference": _REAL, "difference": _REAL,
    "difference_low": _REAL, "difference_high": _REAL, "difference_p": _REAL,
    "difference_p_holm": _REAL, "equivalence_p": _REAL, "equivalence_p_holm": _REAL,
    "difference_why": _TEXT, "identical_seeds": _INT, "verdict": _TEXT, "family": _INT,
    "cells": _TEXT,
}  # fmt: skip


def frameworks_table(runs: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """One row per cell (all settings but seed and framework) and framework beside the reference.

    ``ratio`` is reference / framework, ``difference`` reference - framework. One family: Holm over
    both differences of all rows, and over their equivalence tests. See COLUMNS.
    """
    cells = runs.assign(cell=[_without_framework(text) for text in runs["condition"]])
    rows = []
    for _, cell in cells.groupby("cell", sort=False):
        arms = [cell[cell["framework"] == name] for name in ORDER]
        there = [arm for arm in arms if len(arm)]
        rows += [_compared(there[0], arm) for arm in there[1:]]
    _adjust(rows)
    for row in rows:
        row |= {"family": 2 * len(rows), "speed": _speed(row), "verdict": _verdict(row)}
    return in_order(frame(rows, COLUMNS), techniques)


def _without_framework(condition: str) -> str:
    return key({name: v for name, v in json.loads(condition).items() if name != "framework"})


def _compared(reference: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    first = other.iloc[0]
    scores, others = (values(arm["scored_accuracy"]) for arm in (reference, other))
    found = welch(scores, others)
    no_accuracy = pd.concat([reference, other])["scored_accuracy_why"].dropna()
    return {
        **{name: first[name] for name in _ABOUT},
        "context": without_framework(first["context"], first["framework"]),
        "reference": reference["framework"].iloc[0],
        "framework": first["framework"],
        "n": len(other),
        "n_diverged": int((other["status"] == "diverged").sum()),
        "n_reference": len(reference),
        "n_diverged_reference": int((reference["status"] == "diverged").sum()),
        **_throughput(reference, other),
        "accuracy": other["scored_accuracy"].mean(),
        "accuracy_reference": reference["scored_accuracy"].mean(),
        "difference": found.value,
        "difference_low": found.low,
        "difference_high": found.high,
        "difference_p": found.p,
        "equivalence_p": equivalence_p(scores, others, MARGIN),
        "identical_seeds": _identical(reference, other),
        "difference_why": found.why if found.value is not None else _listed(no_accuracy),
        "cells": " ".join([*reference["cell_id"], *other["cell_id"]]),
    }


def _identical(reference: pd.DataFrame, other: pd.DataFrame) -> int:
    """Seeds for which both end in the same loss and the same accuracies, to the last digit."""
    sides = (set(runs[["seed", *_ENDS]].dropna().itertuples(index=False, name=None))
             for runs in (reference, other))  # fmt: skip
    return len(set.intersection(*sides))


def _throughput(reference: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    """Steady-state images/s of completed runs; no ratio between different machines."""
    done = [arm[arm["status"] == "completed"] for arm in (reference, other)]
    above, below = (values(arm["images_per_s"]) for arm in done)
    why = _no_ratio(*done)
    ratio = ratio_t(above, below) if why is None else Ratio(None, None, None, why)
    logs = [[math.log(rate) for rate in rates] for rates in (above, below)]
    return {
        "images_per_s": geometric_mean(below),
        "images_per_s_reference": geometric_mean(above),
        "ratio": ratio.value,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "ratio_p": welch(*logs).p if why is None else None,
        "ratio_why": ratio.why,
    }


def _no_ratio(reference: pd.DataFrame, other: pd.DataFrame) -> str | None:
    for arm in (reference, other):
        if not len(arm):
            return "no completed run of one of the two"
        if arm["images_per_s"].isna().all():
            return _listed(arm["images_per_s_why"].dropna())
        if arm["oversubscribed"].any():
            return SHARED_CORES
    machines = [set(zip(arm["device"], _cores(arm), strict=True)) for arm in (reference, other)]
    return None if machines[0] == machines[1] else "the two ran on different devices or cores"


def _cores(runs: pd.DataFrame) -> list[int | None]:
    """A GPU does the work wherever its host's cores are; without one the cores do it."""
    kinds = zip(runs["device_kind"], runs["cores_per_rank"], strict=True)
    return [int(cores) if kind == "cpu" else None for kind, cores in kinds]


def _listed(reasons: pd.Series[str]) -> str:
    return "; ".join(dict.fromkeys(reasons)) or "the records do not have it"


def _adjust(rows: Sequence[dict[str, Any]]) -> None:
    """Holm's adjustment: of all tests for a difference, and of all for equality."""
    names = [(row, name) for row in rows for name in ("ratio_p", "difference_p")]
    adjusted = holm([row[name] for row, name in names])
    for (row, name), p in zip(names, adjusted, strict=True):
        row[f"{name}_holm"] = p
    for row, p in zip(rows, holm([row["equivalence_p"] for row in rows]), strict=True):
        row["equivalence_p_holm"] = p


def _speed(row: dict[str, Any]) -> str:
    if row["ratio"] is None:
        return "not compared"
    if row["ratio_p_holm"] is None or row["ratio_p_holm"] >= ALPHA:
        return "inconclusive"
    return f"{row['reference'] if row['ratio'] > 1 else row['framework']} is faster"


def _verdict(row: dict[str, Any]) -> str:
    """What the seeds say of the accuracies; a difference shown may still be a small one."""
    difference, p, equal = (
        row[name] for name in ("difference", "difference_p_holm", "equivalence_p_holm")
    )
    if difference is None:
        return "not compared"
    if 1 < row["identical_seeds"] == row["n"] == row["n_reference"]:
        return "identical in every seed"
    if p is None:
        return "inconclusive"
    within = f"to within {MARGIN:g}"
    if p < ALPHA:
        return f"different, equal {within}" if equal is not None and equal < ALPHA else "different"
    return f"equal {within}" if equal is not None and equal < ALPHA else "no difference shown"
