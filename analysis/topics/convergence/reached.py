"""What each condition reaches: one row per condition (all settings but the seed)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.records.columns import SHARED_CORES
from analysis.records.frames import in_order
from analysis.stats.intervals import mean, share
from analysis.table import Column, Row, Table, count, frame, number, significant
from analysis.topics.topic import (
    NAMES,
    batch_text,
    diverged_text,
    only,
    ranks_column,
    reasons,
)

CHANGED_IMAGES = (
    "training images are cropped, mirrored or cut at random: this accuracy is of the changed "
    "images, lower than that of the same weights on the images as they are"
)
#: Equal for all runs of a condition; in the CSV.
_SETTINGS = (
    "dataset", "image_size", "model", "pretrained", "data_fraction", "validate_on", "partition",
    "framework", "target", "deterministic", "scaling", "epochs", "batch_per_rank", "accumulation",
)  # fmt: skip
_TYPES: dict[str, Any] = {
    "image_size": "Int64", "data_fraction": "Float64", "deterministic": "boolean",
    "epochs": "Int64", "batch_per_rank": "Int64", "accumulation": "Int64",
}  # fmt: skip
#: Of less than this share of itself in its last epoch the loss no longer falls.
_FALLING = 0.01


def columns(runs: pd.DataFrame) -> tuple[Column, ...]:
    three = number(3)
    return (
        *NAMES,
        *(Column(name, _TYPES.get(name, "string")) for name in _SETTINGS),
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", "images per optimizer step, over all ranks "
               "and accumulated batches; where it grows, first → last epoch", cell=_batch),
        Column("global_batch_last", "Int64"),
        Column("steps", "Int64", "steps", "optimizer steps of a whole run", note="steps_note"),
        Column("steps_note", "string"),
        Column("train_accuracy", "Float64", "training accuracy", "running mean over the last "
               "epoch, while weights change: the metric of the course, no measure of "
               "generalisation",
               format=three, estimate=True, cell=_training),
        Column("validation_accuracy", "Float64", "validation accuracy", f"{_validated_on(runs)} "
               "after the final epoch (never the best one): mean of the runs that completed, with "
               "its 95 % t interval over seeds", format=three, estimate=True),
        Column("train_loss", "Float64", estimate=True),
        Column("validation_loss", "Float64", estimate=True),
        Column("n", "Int64", "runs", "with a seed of their own each"),
        Column("diverged", "Float64", "diverged", "runs that diverged, with the exact 95 % "
               "interval (Clopper and Pearson) of their share; they are in no mean", estimate=True,
               cell=diverged_text, only_if_varied=not (runs["status"] == "diverged").any()),
        Column("train_s", "Float64", "training s", "seconds in training epochs (not in validation, "
               "nor in statistics that batch norm takes anew for it), mean over completed runs",
               estimate=True, cell=lambda row: significant(row["train_s"])),
        Column("still_falling", "Float64", "loss still falls", "runs whose training loss fell by "
               f"more than {_FALLING:.0%} in the last epoch: more epochs may change their order",
               estimate=True, cell=_falling),
        Column("chance", "Float64"),
        Column("seeds", "string"),
        Column("cells", "string"),
    )  # fmt: skip


def table(runs: pd.DataFrame, epochs: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """One row per condition, over ``runs`` and their ``epochs``.

    Accuracies, losses and seconds are over the runs that completed. ``diverged`` is the share of
    runs that did not; a mean over both kinds would be of neither.
    """
    falling = _still_falling(epochs)
    marked = runs.assign(falling=runs["cell_id"].map(falling))
    rows = [_row(group) for _, group in marked.groupby("condition", sort=False, observed=True)]
    made = columns(runs)
    return Table(
        "convergence",
        "What each condition reaches",
        made,
        in_order(frame(rows, made), techniques),
    )


def _still_falling(epochs: pd.DataFrame) -> pd.Series[Any]:
    """Per cell: whether the training loss of its last epoch is below that of the one before; null
    where one of the two is."""
    losses = epochs[["cell_id", "epoch", "train_loss"]]
    ordered = losses.sort_values(["cell_id", "epoch"], kind="stable")
    before = ordered.groupby("cell_id", sort=False, observed=True)["train_loss"].shift()
    change = ordered.assign(change=ordered["train_loss"] / before - 1)
    ends = change.groupby("cell_id", sort=False, observed=True).tail(1).set_index("cell_id")
    return ends["change"] < -_FALLING


def _row(group: pd.DataFrame) -> dict[str, Any]:
    survivors = group[group["status"] == "completed"]
    first, planned = group.iloc[0], len(group)
    steps = sorted(set(survivors["steps"]))
    lost = planned - len(survivors)
    falling = survivors["falling"].dropna()
    row: dict[str, Any] = {
        **{name: first[name] for name in ("technique", "technique_label", "context", *_SETTINGS)},
        "gpus": first["gpus"],
        "global_batch": first["global_batch"],
        "global_batch_last": group["global_batch_last"].max(),
        "steps": only(steps),
        "steps_note": _steps_note(steps, planned),
        "n": planned,
        "chance": first["chance"],
        "seeds": " ".join(str(seed) for seed in sorted(group["seed"])),
        "cells": " ".join(group["cell_id"]),
        **share(lost, planned).columns("diverged"),
        **share(int(falling.sum()), len(falling)).columns("still_falling"),
    }
    for name in ("train_accuracy", "validation_accuracy"):
        found = mean(survivors[name].dropna().tolist(), "share")
        row |= _noted(found, survivors, name, planned).columns(name)
    for name in ("train_loss", "validation_loss", "train_s"):
        found = mean(survivors[name].dropna().tolist())
        row |= _noted(found, survivors, name, planned).columns(name)
    if bool(group["oversubscribed"].any()):
        row["train_s_note"] = reasons([SHARED_CORES, row["train_s_note"]])
    if bool(first["changes_images"]) and row["train_accuracy"] is not None:
        row["train_accuracy_note"] = reasons([CHANGED_IMAGES, row["train_accuracy_note"]])
    return row


def _noted(found: Any, survivors: pd.DataFrame, name: str, planned: int) -> Any:
    """The estimate with the reason why it is of fewer runs than completed, or of none."""
    if not len(survivors):
        return found._replace(note=_all_diverged(planned))
    if not found.n:
        told = reasons(survivors[f"{name}_why"]) if f"{name}_why" in survivors else None
        return found._replace(note=told or "the records do not have it")
    if found.n < len(survivors):
        lacking = f"{len(survivors) - found.n} of {len(survivors)} runs lack the value"
        return found._replace(note=reasons([found.note, lacking]))
    return found


def _all_diverged(planned: int) -> str:
    return f"all {planned} runs diverged" if planned > 1 else "the only run diverged"


def _steps_note(steps: Sequence[int], planned: int) -> str | None:
    if not steps:
        return _all_diverged(planned)
    return None if len(steps) == 1 else f"the runs differ: {steps[0]:,} to {steps[-1]:,}"


def _batch(row: Row) -> str:
    return batch_text(row["global_batch"], row["global_batch_last"])


def _training(row: Row) -> str:
    return number(3)(row["train_accuracy"])


def _falling(row: Row) -> str:
    known = row["still_falling_n"]
    return f"{round(row['still_falling'] * known)} of {count(known)}" if known else "n/a"


def _validated_on(runs: pd.DataFrame) -> str:
    whole, part = "whole held-out split", "a tenth of the training images, which no run trained on,"
    found = set(runs["validate_on"])
    if found == {"train_part"}:
        return part
    return f"{whole}, or where so named {part}" if "train_part" in found else whole
