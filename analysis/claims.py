"""Is a technique better than the reference? Welch's t over seeds, Holm over the whole family.

One comparison per technique and workload, which the framework is a part of, at the largest rank
count (then batch) that both have. Accuracy is over all runs, a diverged one counting as chance: to
leave it out would reward a technique for losing its bad runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pandas as pd

from analysis.frames import frame, in_order
from analysis.scores import compared, workloads
from analysis.stats import ALPHA, holm, pooled_sd, seeds_to_decide

REFERENCE = "naive"
_TEXT, _INT, _REAL = "string", "Int64", "Float64"
COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "reference": _TEXT, "context": _TEXT,
    "gpus": _INT, "global_batch": _INT, "n": _INT, "n_diverged": _INT, "n_reference": _INT,
    "n_diverged_reference": _INT, "accuracy": _REAL, "accuracy_reference": _REAL,
    "difference": _REAL, "difference_low": _REAL, "difference_high": _REAL, "p": _REAL,
    "p_holm": _REAL, "family": _INT, "verdict": _TEXT, "why": _TEXT, "seeds_alone": _INT,
    "seeds_in_family": _INT, "seeds_why": _TEXT,
}  # fmt: skip
_NO_COMMON = "no rank count and batch at which both have a usable run"
NOT_COMPARED = "not compared"
_STOPPED = "a run ends where its target is met, with another budget than others: see Targets"


def reference_technique(techniques: Sequence[str]) -> str | None:
    """The technique that the others are compared with: naive, else the first of the sweep."""
    if REFERENCE in techniques:
        return REFERENCE
    return techniques[0] if techniques else None


def claims_table(runs: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """One row per comparison; see COLUMNS. ``techniques``: order and names of the manifest."""
    reference = reference_technique(techniques)
    rest = [name for name in techniques if name != reference]
    rows = [_compared(arm, other) for arm, other in _pairs(runs, rest, reference)]
    rows += [_absent(name, reference) for name in rest if not (runs["technique"] == name).any()]
    for row, adjusted in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row.update(p_holm=adjusted, family=len(rows))
        row.update(verdict=_verdict(row))
        row.update(_seeds(row.pop("spread"), row))
    return in_order(frame(rows, COLUMNS), techniques)


def _pairs(
    runs: pd.DataFrame, names: Sequence[str], reference: str | None
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """All runs of a technique (with one set of settings) and of the reference, per workload."""
    for _, workload in runs.assign(workload=workloads(runs)).groupby("workload", sort=False):
        arms = [arm for name in names for arm in _variants(workload, name)]
        yield from product(arms, _variants(workload, reference) or [workload.iloc[:0]])


def _variants(runs: pd.DataFrame, technique: str | None) -> list[pd.DataFrame]:
    own = runs[runs["technique"] == technique]
    return [group for _, group in own.groupby("technique_label", sort=False)]


def _absent(technique: str, reference: str | None) -> dict[str, Any]:
    """A planned comparison without a run: it is listed, and it counts in the family."""
    row = {"technique": technique, "technique_label": technique, "reference": reference}
    return {**row, "p": None, "why": f"no usable run of {technique}", "spread": (None, None)}


def _compared(arm: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any]:
    row: dict[str, Any] = {
        "technique": arm["technique"].iloc[0],
        "technique_label": arm["technique_label"].iloc[0],
        "reference": other["technique_label"].iloc[0] if len(other) else None,
        "context": arm["context"].iloc[0],
    }
    at = _largest_common(arm, other)
    if at is None:
        why = _NO_COMMON if len(other) else "no usable run of the reference technique"
        return {**row, "p": None, "why": why, "spread": (None, None)}
    arm, other = (runs[_place(runs) == at] for runs in (arm, other))
    scores, baseline, found, told = compared(arm, other, "the reference", _STOPPED)
    return {
        **row,
        "context": arm["context"].iloc[0],
        "gpus": arm["gpus"].iloc[0],
        "global_batch": arm["global_batch"].iloc[0],
        "n": len(arm),
        "n_diverged": int((arm["status"] == "diverged").sum()),
        "n_reference": len(other),
        "n_diverged_reference": int((other["status"] == "diverged").sum()),
        "accuracy": arm["scored_accuracy"].mean(),
        "accuracy_reference": other["scored_accuracy"].mean(),
        "difference": found.value,
        "difference_low": found.low,
        "difference_high": found.high,
        "p": found.p,
        "why": told,
        "spread": (found.value, pooled_sd(scores, baseline)),
    }


def _place(runs: pd.DataFrame) -> pd.Series[Any]:
    """Where a run competes: its rank count, then its batch; weak and strong cells stay apart, and
    batches that are made of other parts, since what normalises a part sees other images."""
    names = ("gpus", "global_batch", "accumulation", "scaling")
    return pd.Series(
        list(zip(*(runs[name] for name in names), strict=True)),
        index=runs.index,
        dtype=object,
    )


def _largest_common(arm: pd.DataFrame, other: pd.DataFrame) -> tuple[Any, ...] | None:
    return max(set(_place(arm)) & set(_place(other)), default=None)


def _verdict(row: dict[str, Any]) -> str:
    if row.get("difference") is None:
        return NOT_COMPARED
    if row["p_holm"] is None or row["p_holm"] >= ALPHA:
        return "inconclusive"
    return "higher" if row["difference"] > 0 else "lower"


def _seeds(spread: tuple[float | None, float | None], row: dict[str, Any]) -> dict[str, Any]:
    """How many runs per arm would decide, were this difference and this spread the true ones."""
    if row["verdict"] != "inconclusive":
        return {"seeds_alone": None, "seeds_in_family": None, "seeds_why": None}
    alone = seeds_to_decide(*spread)
    # Holm's first step, the strictest, tests at alpha / family
    family = seeds_to_decide(*spread, alpha=ALPHA / row["family"])
    return {"seeds_alone": alone.n, "seeds_in_family": family.n, "seeds_why": family.why}
