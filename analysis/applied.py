"""What was applied: steps, images and rates of each condition, added up from its epochs.

Taken from records, not from configs, so that an unequal budget or a rate that never came to be is
seen. One row per condition, over its completed runs; where these differ, from the least to the
most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.display import Column, Notes, Row, Table, count, plain_rows, significant, with_context
from analysis.frames import frame, in_order
from analysis.tables import batch_text, ranks_column

_TEXT, _INT, _REAL = "string", "Int64", "Float64"
#: What is added up per run -> its type.
MEASURES = {
    "epochs": _INT, "steps": _INT, "images": _INT, "lr_peak": _REAL, "lr_integral": _REAL,
    "skipped_steps": _INT, "gain": _REAL,
}  # fmt: skip
_ABOUT = ("technique", "technique_label", "context", "gpus", "batch_per_rank", "global_batch")
COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "gpus": _INT,
    "batch_per_rank": _INT, "global_batch": _INT, "n": _INT, "n_diverged": _INT,
    "batch_first": _INT, "batch_last": _INT, "accumulation_first": _INT, "accumulation_last": _INT,
    **{f"{name}_{end}": kind for name, kind in MEASURES.items() for end in ("low", "high")},
    "why": _TEXT, "cells": _TEXT,
}  # fmt: skip
OLDER = "written before the mean rate of an epoch was recorded"
NO_GAIN = "not AdaScale"


def applied_table(
    runs: pd.DataFrame, epochs: pd.DataFrame, techniques: Sequence[str]
) -> pd.DataFrame:
    """``runs`` and ``epochs``: frames of the same records; see COLUMNS.

    ``lr_peak`` is the largest of the rates known: of the first and the last step of each epoch,
    and its mean. ``lr_integral`` is the rate summed over all steps. ``gain``: AdaScale's, mean over
    the steps.
    """
    by_run = {cell: summed(own) for cell, own in epochs.groupby("cell_id", sort=False)}
    rows = [_row(group, by_run) for _, group in runs.groupby("condition", sort=False)]
    return in_order(frame(rows, COLUMNS), techniques)


def summed(epochs: pd.DataFrame) -> dict[str, Any]:
    """MEASURES of one run from its epochs; a value that an epoch lacks is null."""
    steps = epochs["steps"]
    total = int(steps.sum())
    rates = epochs[["lr_first", "lr_last", "lr_mean"]].max().max()
    applied = steps - epochs["skipped_steps"]  # which lr_mean is the mean over
    integral = (epochs["lr_mean"] * applied).sum(skipna=False)
    gain = (epochs["gain"] * steps).sum(skipna=False)
    return {
        "epochs": len(epochs),
        "steps": total,
        "images": int(epochs["images"].sum()),
        "lr_peak": rates,
        "lr_integral": integral,
        "skipped_steps": int(epochs["skipped_steps"].sum()),
        "gain": gain if pd.isna(gain) else gain / total,
        "batch_first": epochs["epoch_batch"].iloc[0],
        "batch_last": epochs["epoch_batch"].iloc[-1],
        "accumulation_first": epochs["accumulation"].iloc[0],
        "accumulation_last": epochs["accumulation"].iloc[-1],
    }


def _row(group: pd.DataFrame, by_run: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    completed = group.loc[group["status"] == "completed", "cell_id"]
    found = [by_run[cell] for cell in completed]
    row: dict[str, Any] = {
        **{name: group.iloc[0][name] for name in _ABOUT},
        "n": len(found),
        "n_diverged": len(group) - len(found),
        "why": None if found else "no run completed",
        "cells": " ".join(completed),
    }
    for name in MEASURES:
        known = [run[name] for run in found if not pd.isna(run[name])]
        row |= {f"{name}_low": min(known, default=None), f"{name}_high": max(known, default=None)}
    for name in ("batch", "accumulation"):
        ends = [(run[f"{name}_first"], run[f"{name}_last"]) for run in found]
        row |= {
            f"{name}_first": ends[0][0] if ends else None,
            f"{name}_last": max((last for _, last in ends), default=None),
        }
    return row


def applied_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    notes = Notes()
    adascale = table["gain_high"].notna().any()
    columns = (
        ranks_column(runs),
        Column("condition", "left"),
        Column("global batch", about="of the first → last epoch, where it grows"),
        Column("batches a step", about="whose gradients a rank adds up before each step (first → "
               "last epoch): above 1 they stand in for that many times the ranks"),
        Column("epochs"),
        Column("steps", about="optimizer steps executed"),
        Column("images seen", about="over all ranks and epochs: the budget in computing"),
        Column("lr peak", about="largest rate at the first or last step of an epoch, as applied"),
        Column("lr integral", about="the rate as applied, summed over all steps: two schedules of "
               "equal peak may differ twofold in it"),
        Column("skipped", about="steps without an update, since a gradient overflowed in half "
               "precision"),
        *((Column("gain", about="AdaScale's, mean over the steps"),) if adascale else ()),
        Column("runs", about="completed"),
    )  # fmt: skip
    rows = tuple(_view_row(row, notes, adascale=adascale) for row in plain_rows(table))
    return Table(
        "applied",
        "What was applied",
        columns,
        rows,
        notes.lines(),
        intro="Added up from the records of the epochs, not from the configs. Rows of unequal "
        "steps or images are no comparison at equal budget.",
        empty="No usable run.",
    )


def _view_row(row: Row, notes: Notes, *, adascale: bool) -> tuple[str, ...]:
    def known(name: str, missing: str = "the records do not have it") -> str:
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        if low is None:
            return notes.missing(row["why"] or missing)
        shown = significant if MEASURES[name] == _REAL else count
        return shown(low) if shown(low) == shown(high) else f"{shown(low)} to {shown(high)}"

    def grown(name: str) -> str:
        first, last = row[f"{name}_first"], row[f"{name}_last"]
        return notes.missing(row["why"]) if first is None else batch_text(first, last)

    return (
        count(row["gpus"]),
        with_context(row),
        grown("batch"),
        grown("accumulation"),
        known("epochs"),
        known("steps"),
        known("images"),
        known("lr_peak"),
        known("lr_integral", OLDER),
        known("skipped_steps"),
        *((known("gain", NO_GAIN),) if adascale else ()),
        count(row["n"]),
    )
