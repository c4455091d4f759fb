"""What it took to reach the target: epochs, steps and seconds, a run that never did counting as
infinity; and the clock of each run, epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import pandas as pd

from analysis.checks import reason_for
from analysis.display import (
    Column,
    Notes,
    Row,
    Table,
    count,
    plain_rows,
    significant,
    text,
    with_context,
)
from analysis.frames import frame, in_order
from analysis.tables import ranks_column
from train.record.run import RunRecord

_TEXT, _INT, _REAL, _BOOL = "string", "Int64", "Float64", "boolean"
_ABOUT: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "gpus": _INT,
    "global_batch": _INT, "target": _TEXT,
}  # fmt: skip
MEASURES = ("epoch", "steps", "images", "seconds", "train_s")
RUN_COLUMNS: dict[str, str] = {
    "cell_id": _TEXT, "status": _TEXT, "condition": _TEXT, **_ABOUT, "seed": _INT, "met": _BOOL,
    "epoch": _INT, "steps": _INT, "images": _INT, "seconds": _REAL, "train_s": _REAL, "why": _TEXT,
}  # fmt: skip
COLUMNS: dict[str, str] = {
    **_ABOUT, "n": _INT, "n_met": _INT,
    **{f"{name}_median": _REAL for name in MEASURES},
    **{f"{name}_runs": _TEXT for name in MEASURES},
    "median_why": _TEXT, "unmet_why": _TEXT, "cells": _TEXT,
}  # fmt: skip
CLOCK = {"images_per_s": _REAL, "train_s_so_far": _REAL, "seconds_so_far": _REAL}
NO_TARGET = "No cell of the sweep has a target."


def targets_frame(records: Sequence[RunRecord], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run whose config has a target; ``runs`` is the frame of the same records.

    ``seconds`` is the run's clock, training and evaluation; ``train_s`` leaves evaluation out. A
    run whose record has no outcome, as one that diverged, did not meet it.
    """
    about = runs.set_index("cell_id")
    named = ("status", "condition", "technique", "technique_label", "context", "gpus",
             "global_batch", "target", "seed")  # fmt: skip
    rows: list[dict[str, Any]] = []
    for record in records:
        if record.config.target is None:
            continue
        row = {name: about.at[record.cell_id, name] for name in named}
        rows.append({"cell_id": record.cell_id, **row, **_reached(record)})
    return frame(rows, RUN_COLUMNS)


def _reached(record: RunRecord) -> dict[str, Any]:
    found = record.target
    if found is None:
        return {"met": False, "why": reason_for(record, "target")}
    row = found.model_dump(include={"met", "epoch", "steps", "images", "seconds", "why"})
    if found.epoch is not None:
        row["train_s"] = sum(e.train_s for e in record.epochs if e.epoch <= found.epoch)
    return row


def targets_table(targets: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """One row per condition; see COLUMNS.

    The median is over all runs, one that did not meet its target counting as infinity: the mean or
    the median of those that did would reward a technique for losing its slow runs. Where it is
    infinite it is null, and ``median_why`` says so.
    """
    rows = [_row(group) for _, group in targets.groupby("condition", sort=False)]
    return in_order(frame(rows, COLUMNS), techniques)


def _row(group: pd.DataFrame) -> dict[str, Any]:
    ordered = group.sort_values("seed", kind="stable")
    first, n = ordered.iloc[0], len(ordered)
    unmet = ordered[~ordered["met"]]
    row: dict[str, Any] = {name: first[name] for name in _ABOUT}
    row |= {"n": n, "n_met": n - len(unmet), "cells": " ".join(ordered["cell_id"])}
    for name in MEASURES:
        found = [math.inf if pd.isna(value) else float(value) for value in ordered[name]]
        middle = median(found)
        row[f"{name}_median"] = middle if math.isfinite(middle) else None
        row[f"{name}_runs"] = " ".join(f"{value:g}" for value in found)
    if row["epoch_median"] is None:
        row["median_why"] = f"not met by {len(unmet)} of {n} runs: the median is infinite"
    row["unmet_why"] = " | ".join(dict.fromkeys(unmet["why"].dropna())) or None
    return row


def targets_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    notes = Notes()
    columns = (
        ranks_column(runs),
        Column("condition", "left"),
        Column("global batch"),
        Column("target", "left", "accuracies that every one of the evaluations in a row reaches; "
               "training accuracy is the running mean over an epoch"),
        Column("met", about="runs that met it / runs; a diverged run did not"),
        Column("epochs", about="until the last of the evaluations that held it: median over all "
               "runs, one that did not meet it counting as infinity"),
        Column("steps", about="optimizer steps until then, median likewise"),
        Column("seconds", about="of training and evaluation until then, the clock of the target, "
               "all starts together, median likewise"),
        Column("training s", about="the same without evaluation, median likewise"),
    )  # fmt: skip
    rows = tuple(_view_row(row, notes) for row in plain_rows(table))
    return Table(
        "targets",
        "Targets: what it took to reach them",
        columns,
        rows,
        notes.lines(),
        intro="A run stops when its target is met or can no longer be met, so that its final "
        "accuracy is no measure of its technique." if rows else "",
        empty=NO_TARGET,
    )  # fmt: skip


def _view_row(row: Row, notes: Notes) -> tuple[str, ...]:
    met = f"{row['n_met']}/{row['n']}"
    medians = [row[f"{name}_median"] for name in ("epoch", "steps", "seconds", "train_s")]
    return (
        count(row["gpus"]),
        with_context(row),
        count(row["global_batch"]),
        text(row["target"]),
        f"{met} {notes.mark(row['unmet_why'])}".strip(),
        *(notes.missing(row["median_why"]) if m is None else _short(m) for m in medians),
    )


def _short(value: float) -> str:
    """Counts as they are, also the half that a median of two may have."""
    return f"{value:,.0f}" if float(value).is_integer() else significant(value)


def with_clock(epochs: pd.DataFrame) -> pd.DataFrame:
    """The epochs frame with each run's rate and clock so far; see CLOCK.

    ``images_per_s``: of the epoch, its training seconds alone, sampled steps with them.
    ``train_s_so_far``: training seconds up to the epoch's end, all starts together;
    ``seconds_so_far``: with evaluation.
    """
    ordered = epochs.sort_values(["cell_id", "epoch"], kind="stable")
    spent = ordered.assign(seconds=ordered["train_s"] + ordered["eval_s"])
    sums = spent.groupby("cell_id", sort=False)[["train_s", "seconds"]].cumsum()
    rate = (epochs["images"] / epochs["train_s"]).where(epochs["train_s"] > 0)
    clock = {
        "images_per_s": rate,
        "train_s_so_far": sums["train_s"].reindex(epochs.index),
        "seconds_so_far": sums["seconds"].reindex(epochs.index),
    }
    return epochs.assign(**clock).astype(CLOCK)
