"""Gradient noise scale: one row per run and epoch, and what becomes of it over a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.display import Column, Notes, Row, Table, count, plain_rows, significant, with_context
from analysis.frames import frame, in_order, values
from analysis.stats import ONE_RUN, geometric_mean, mean_t
from analysis.tables import batch_text, ranks_column
from train.record.run import NoiseScale, RunRecord

_TEXT, _INT, _REAL, _BOOL = "string", "Int64", "Float64", "boolean"
NOISE_COLUMNS: dict[str, str] = {
    "cell_id": _TEXT, "status": _TEXT, "technique": _TEXT, "technique_label": _TEXT,
    "context": _TEXT, "gpus": _INT, "global_batch": _INT, "seed": _INT, "condition": _TEXT,
    "epoch": _INT, "steps": _INT, "batch_small": _INT, "batch_big": _INT, "trace": _REAL,
    "gradient_sq": _REAL, "b_simple": _REAL, "low": _REAL, "high": _REAL, "censored": _BOOL,
}  # fmt: skip
#: Of a run's epochs, those that the table shows.
WHEN = ("first", "middle", "last")
_OF_AN_EPOCH = {
    "epoch": _INT, "n": _INT, "n_censored": _INT, "b_simple": _REAL, "low": _REAL, "high": _REAL,
    "batch": _INT, "why": _TEXT,
}  # fmt: skip
TABLE_COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT, "gpus": _INT,
    "global_batch": _INT,
    **{f"{when}_{name}": kind for when in WHEN for name, kind in _OF_AN_EPOCH.items()},
}  # fmt: skip


def noise_frame(records: Sequence[RunRecord], runs: pd.DataFrame) -> pd.DataFrame:
    """One row per run and epoch that has a noise scale; ``runs`` is the frame of these records.

    ``global_batch`` is the config's, ``batch_big`` that of the epoch, which growth may have
    changed. Where ``censored``, b_simple is null and above ``low``.
    """
    named = ("status", "technique", "technique_label", "context", "gpus", "global_batch", "seed",
             "condition")  # fmt: skip
    about = runs.set_index("cell_id")
    rows = [
        {"cell_id": record.cell_id, **{name: about.at[record.cell_id, name] for name in named},
         "epoch": epoch.epoch, **_of_a_run(epoch.noise)}
        for record in records
        for epoch in record.epochs
        if epoch.noise is not None
    ]  # fmt: skip
    return frame(rows, NOISE_COLUMNS)


def noise_table(noise: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """One row per condition, over its completed runs, with the first, middle and last epoch that
    any of them measured; see TABLE_COLUMNS.

    Over seeds: the geometric mean with the t interval of the logarithm. Of one run: its own
    bootstrap interval. Where a run is censored no mean is taken, since it would be of the low ones:
    ``low`` is then the smallest lower end, ``b_simple`` and ``high`` are null.
    """
    completed = noise[noise["status"] == "completed"]
    rows = [_row(group) for _, group in completed.groupby("condition", sort=False)]
    return in_order(frame(rows, TABLE_COLUMNS), techniques)


def noise_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    notes = Notes()
    over_seeds = (
        "images: geometric mean over completed runs [95 % t interval of the logarithm]; of one "
        "run its own value [95 % block bootstrap over its steps]; > where the squared gradient "
        "of a run cannot be told from zero: then only a lower bound is known"
    )
    columns = (
        ranks_column(runs),
        Column("condition", "left"),
        Column("global batch", about="images per optimizer step; where it grew, also at the end"),
        Column("B_simple, first epoch", about=over_seeds),
        Column("middle epoch"),
        Column("last epoch"),
        Column("B / B_simple", about="of the last epoch, with its own batch: far above 1, steps "
               "and not noise limit the run, and a larger batch saves few of them; far below 1, a "
               "larger batch still averages noise away"),
    )  # fmt: skip
    rows = tuple(_view_row(row, notes) for row in plain_rows(table))
    return Table(
        "noise_scale",
        "Noise scale: how large a batch the gradient's noise is worth",
        columns,
        rows,
        notes.lines(),
        intro="B_simple is the trace of the per-image gradient covariance over the squared norm "
        "of the gradient (McCandlish et al. 2018, 1812.06162, appendix A), measured from the "
        "batches of every step. It ignores curvature: read it as an estimate of the critical "
        "batch within a small factor. With batch norm it belongs to the batch that is normalised "
        "together: compare rows of equal batch per rank.",
        empty="No completed run measured its gradient noise.",
    )


def _of_a_run(noise: NoiseScale) -> dict[str, Any]:
    row = noise.model_dump(exclude={"interval"})
    return {**row, "censored": noise.interval == "censored"}


def _row(group: pd.DataFrame) -> dict[str, Any]:
    first = group.iloc[0]
    about = ("technique", "technique_label", "context", "gpus", "global_batch")
    row: dict[str, Any] = {name: first[name] for name in about}
    epochs = sorted(set(group["epoch"]))
    for when, epoch in zip(WHEN, (epochs[0], epochs[(len(epochs) - 1) // 2], epochs[-1]),
                           strict=True):  # fmt: skip
        found = _over_runs(group[group["epoch"] == epoch])
        row |= {f"{when}_{name}": value for name, value in found.items()}
    return row


def _over_runs(epoch: pd.DataFrame) -> dict[str, Any]:
    """One epoch of one condition over its runs; keys of _OF_AN_EPOCH."""
    # no noise at all, of ranks that see the same images, has no logarithm
    found = [value for value in values(epoch["b_simple"]) if value > 0]
    censored = int(epoch["censored"].sum())
    row: dict[str, Any] = {
        "epoch": epoch["epoch"].iloc[0], "n": len(epoch), "n_censored": censored,
        "batch": epoch["batch_big"].iloc[0], "why": _why(epoch, found, censored),
    }  # fmt: skip
    if censored:
        bounds = epoch["low"]
        # a run without interval bounds nothing
        return row | {"low": None if bounds.isna().any() else float(bounds.min())}
    if len(found) == 1:
        only = epoch[epoch["b_simple"] > 0].iloc[0]
        return row | {name: only[name] for name in ("b_simple", "low", "high")}
    row["b_simple"] = geometric_mean(found)
    half = mean_t([math.log(value) for value in found]).half_width
    if row["b_simple"] is None or half is None:
        return row
    low, high = (row["b_simple"] * math.exp(sign * half) for sign in (-1, 1))
    return row | {"low": low, "high": high}


def _why(epoch: pd.DataFrame, found: Sequence[float], censored: int) -> str | None:
    runs = len(epoch)
    if censored:
        return f"censored in {censored} of {runs} run{'s' if runs > 1 else ''}"
    lacking = runs - len(found)
    if lacking == runs:
        steps = int(epoch["steps"].min())
        return f"too few steps in an epoch ({steps}), or no noise between the batches of a step"
    if lacking:
        return f"{lacking} of {runs} runs lack the value"
    return ONE_RUN if runs == 1 else None


def _view_row(row: Row, notes: Notes) -> tuple[str, ...]:
    return (
        count(row["gpus"]),
        with_context(row),
        batch_text(row["global_batch"], row["last_batch"]),
        *(_cell(row, when, notes) for when in WHEN),
        _ratio(row, notes),
    )


def _cell(row: Row, when: str, notes: Notes) -> str:
    value, low, high, why, censored, epoch = (
        row[f"{when}_{name}"] for name in ("b_simple", "low", "high", "why", "n_censored", "epoch")
    )
    place = f"epoch {epoch}: "
    if censored and low is not None:
        return f"{place}> {significant(low)} {notes.mark(why)}"
    if value is None:
        return place + notes.missing(why)
    ends = f" [{significant(low)}, {significant(high)}]" if low is not None else ""
    mark = f" ({ONE_RUN})" if why == ONE_RUN else f" {notes.mark(why)}" if why else ""
    return f"{place}{significant(value)}{ends}{mark}"


def _ratio(row: Row, notes: Notes) -> str:
    batch, value, low, why = (row[f"last_{name}"] for name in ("batch", "b_simple", "low", "why"))
    if value is not None:
        return significant(batch / value)
    if row["last_n_censored"] and low is not None and low > 0:
        return f"< {significant(batch / low)}"
    return notes.missing(why)
