"""Two sets of runs by their accuracy: the difference, and what stands against comparing them."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from analysis.display import joined
from analysis.frames import values
from analysis.labels import key
from analysis.stats import Difference, welch

#: What is trained on what, for how long: rows that differ in it answer different questions.
_WORKLOAD = ("dataset", "image_size", "model", "pretrained", "data_fraction", "validate_on",
             "partition", "framework", "target", "epochs")  # fmt: skip
#: A larger difference than that of an epoch's remainder is another budget.
_SAME_BUDGET = 0.05


class Compared(NamedTuple):
    """``arm``, ``other``: accuracies of all runs, a diverged one counting as chance; none where a
    target ends runs. ``why``: why there is no difference or interval, or that budgets differ."""

    arm: list[float]
    other: list[float]
    difference: Difference  # arm minus other
    why: str | None


def compared(arm: pd.DataFrame, other: pd.DataFrame, other_name: str, stopped: str) -> Compared:
    """``other_name``: as a reader knows the other side; ``stopped``: what to say of targets."""
    ended = pd.concat([arm, other])["target"].notna().any()
    scores, others = ([] if ended else values(runs["scored_accuracy"]) for runs in (arm, other))
    found = welch(scores, others)
    if ended:
        return Compared(scores, others, found, stopped)
    missing = "; ".join(dict.fromkeys(pd.concat([arm, other])["scored_accuracy_why"].dropna()))
    why = missing if found.value is None else found.why or ""
    told = joined([why, _unequal_budget(arm, other, other_name)], "; ")
    return Compared(scores, others, found, told or None)


def workloads(runs: pd.DataFrame) -> list[str]:
    """Per run: the text that runs of the same data, model, library and epochs share."""
    return [
        key({name: None if pd.isna(run[name]) else str(run[name]) for name in _WORKLOAD})
        for _, run in runs.iterrows()
    ]


def _unequal_budget(arm: pd.DataFrame, other: pd.DataFrame, other_name: str) -> str:
    """What one side saw more or less of images than the other; empty for equal budgets."""
    images = [
        runs.loc[runs["status"] == "completed", "images"].astype(float).mean()
        for runs in (arm, other)
    ]
    if any(pd.isna(seen) for seen in images) or abs(images[0] / images[1] - 1) < _SAME_BUDGET:
        return ""
    return f"no equal budget: it saw {images[0] / images[1]:.2g} times the images of {other_name}"
