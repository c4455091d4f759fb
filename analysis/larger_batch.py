"""What a technique keeps of its accuracy when the batch grows: smallest against largest batch.

Between these two conditions of one technique and workload nothing but the batch is meant to
differ, and what makes it (ranks, images per rank, accumulated batches). Accuracy is over all runs,
a diverged one counting as chance, as in the claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.display import (
    Column,
    Notes,
    Row,
    Table,
    count,
    joined,
    number,
    plain_rows,
    with_context,
)
from analysis.frames import frame, in_order
from analysis.labels import without_batch
from analysis.scores import compared, workloads
from analysis.stats import Mean, mean_t
from analysis.tables import difference_text, ranks_column

_TEXT, _INT, _REAL = "string", "Int64", "Float64"
ENDS = ("small", "large")
_OF_END = {"gpus": _INT, "accumulation": _INT, "global_batch": _INT, "steps": _INT, "n": _INT,
           "n_diverged": _INT, "accuracy": _REAL, "half_width": _REAL}  # fmt: skip
COLUMNS: dict[str, str] = {
    "technique": _TEXT, "technique_label": _TEXT, "context": _TEXT,
    **{f"{name}_{end}": kind for end in ENDS for name, kind in _OF_END.items()},
    "difference": _REAL, "difference_low": _REAL, "difference_high": _REAL, "why": _TEXT,
}  # fmt: skip
_STOPPED = "runs end where their target is met, so they have no accuracy of equal budgets"


def larger_batch_table(runs: pd.DataFrame, techniques: Sequence[str]) -> pd.DataFrame:
    """One row per technique and workload with more than one global batch; see COLUMNS.

    ``difference``: mean at the largest batch minus mean at the smallest, with Welch's 95 %
    interval, for this row alone. Where a batch was reached in several ways, both are of the
    largest rank count that has both; where none has, the smallest is of the fewest ranks and the
    largest of the most.
    """
    series = runs.assign(workload=workloads(runs)).groupby(
        ["workload", "technique_label"], sort=False
    )
    rows = [_row(group) for _, group in series if group["global_batch"].nunique() > 1]
    return in_order(frame(rows, COLUMNS), techniques)


def _row(runs: pd.DataFrame) -> dict[str, Any]:
    small, large = _ends(runs)
    after, before, found, why = compared(large, small, "the smaller batch", _STOPPED)
    return {
        "technique": runs["technique"].iloc[0],
        "technique_label": runs["technique_label"].iloc[0],
        "context": without_batch(large["context"].iloc[0]),
        **_end("small", small, mean_t(before)),
        **_end("large", large, mean_t(after)),
        "difference": found.value,
        "difference_low": found.low,
        "difference_high": found.high,
        "why": why,
    }


def _ends(runs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One condition of the smallest batch, and one of the largest."""
    batches = runs["global_batch"]
    smallest, largest = runs[batches == batches.min()], runs[batches == batches.max()]
    if common := set(smallest["gpus"]) & set(largest["gpus"]):
        smallest, largest = (end[end["gpus"] == max(common)] for end in (smallest, largest))
    return _conditions(smallest)[0], _conditions(largest)[-1]


def _conditions(runs: pd.DataFrame) -> list[pd.DataFrame]:
    """By rising rank count."""
    found = [group for _, group in runs.groupby("condition", sort=False)]
    return sorted(found, key=lambda group: int(group["gpus"].iloc[0]))


def _end(end: str, runs: pd.DataFrame, accuracy: Mean) -> dict[str, Any]:
    first = runs.iloc[0]
    steps = set(runs.loc[runs["status"] == "completed", "steps"])
    found = {
        **{name: first[name] for name in ("gpus", "accumulation", "global_batch")},
        "steps": steps.pop() if len(steps) == 1 else None,
        "n": len(runs),
        "n_diverged": int((runs["status"] == "diverged").sum()),
        "accuracy": accuracy.mean,
        "half_width": accuracy.half_width,
    }
    return {f"{name}_{end}": value for name, value in found.items()}


def larger_batch_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    notes = Notes()
    ranks = ranks_column(runs)
    columns = (
        Column("condition", "left"),
        Column(ranks.head, about="smallest batch → largest batch, of the same rank count where "
               f"one has both; {ranks.about}"),
        Column("global batch", about="where it grows within a run, that of its first epoch"),
        Column("steps", about="of a whole run; n/a where runs differ in it"),
        Column("runs", about="at the smallest / at the largest batch, diverged ones included"),
        Column("accuracy, smallest", about="validation accuracy after the final epoch over all "
               "runs, a diverged one counting as chance: mean ± half-width of the 95 % t interval"),
        Column("accuracy, largest"),
        Column("change", about="largest minus smallest [95 % Welch interval of this row alone]"),
    )  # fmt: skip
    return Table(
        "larger_batch",
        "Larger batch: what accuracy each technique keeps",
        columns,
        tuple(_view_row(row, notes) for row in plain_rows(table)),
        notes.lines(),
        intro="The same technique, data and epochs at the smallest and at the largest global "
        "batch of this sweep. Exploratory: no correction for the number of rows.",
        empty="Every technique has one global batch.",
    )


def _view_row(row: Row, notes: Notes) -> tuple[str, ...]:
    return (
        with_context(row),
        _both(row, "gpus"),
        _both(row, "global_batch"),
        _both(row, "steps"),
        f"{row['n_small']} / {row['n_large']}",
        *(_accuracy(row, end) for end in ENDS),
        difference_text(row, notes, row["why"]),
    )


def _both(row: Row, name: str) -> str:
    first, last = (count(row[f"{name}_{end}"]) for end in ENDS)
    return first if first == last else f"{first} → {last}"


def _accuracy(row: Row, end: str) -> str:
    mean, half, diverged = (
        row[f"{name}_{end}"] for name in ("accuracy", "half_width", "n_diverged")
    )
    return joined(
        [
            number(mean, 3),
            "" if mean is None or half is None else f"± {number(half, 3)}",
            f"({diverged} diverged)" if diverged else "",
        ]
    )
