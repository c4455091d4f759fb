"""A topic of the report, and the columns that several topics share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from analysis.figures import Figure
from analysis.table import Column, Row, Table, count, text


@dataclass(frozen=True)
class Topic:
    """Tables and figures that answer one question. ``key``: its anchor on the page."""

    key: str
    title: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not any(len(table.data) for table in self.tables) and not self.figures


def with_context(row: Row) -> str:
    """Technique, and what else tells this row from its neighbours."""
    context = text(row["context"])
    return f"{row['technique_label']}; {context}" if context else str(row["technique_label"])


#: What names a row of a condition.
NAMES: tuple[Column, ...] = (
    Column("technique", "string"),
    Column("technique_label", "string"),
    Column("context", "string"),
    Column("condition_in_words", None, "condition", "technique, and the settings that differ "
           "within this sweep", cell=with_context),
)  # fmt: skip


def ranks_column(runs: pd.DataFrame) -> Column:
    """GPUs only where every rank had one; elsewhere the footnote says what a rank was."""
    kinds = set(runs["device_kind"])
    devices = " and ".join(sorted(set(runs["device"]))) or "unknown"
    if kinds == {"gpu"}:
        heading, about = "GPUs", f"one rank per GPU; device: {devices}"
    elif "gpu" in kinds:
        heading, about = "ranks", f"one GPU or a group of CPU cores each; devices: {devices}"
    else:
        heading = "ranks"
        cores = sorted(set(runs["cores_per_rank"]))
        group = "1 core" if cores == [1] else f"{cores[0]} cores" if len(cores) == 1 else (
            "several cores"
        )  # fmt: skip
        about = f"groups of CPU cores, not GPUs: {group} each; device: {devices}"
    return Column("gpus", "Int64", heading, about, only_if_varied=True)


def batch_text(first: object, last: object) -> str:
    """A global batch, and what it has grown to."""
    return count(first) if pd.isna(last) or first == last else f"{count(first)} → {count(last)}"  # type: ignore[call-overload]


def reasons(column: Iterable[object]) -> str | None:
    """Distinct reasons in their order; None where there is none."""
    # of many runs, which mostly say the same
    values: Iterable[Any] = column.dropna().unique() if isinstance(column, pd.Series) else column
    found = dict.fromkeys(str(item) for item in values if not pd.isna(item))
    return "; ".join(found) or None


def diverged_text(row: Row) -> str:
    """``1 of 3 (1 to 91 %)``, from the estimate ``diverged`` and ``n``."""
    lost = round((row["diverged"] or 0) * row["n"])
    if not lost:
        return f"0 of {row['n']}"
    low, high = (100 * row[f"diverged_{end}"] for end in ("low", "high"))
    return f"{lost} of {row['n']} ({low:.0f} to {high:.0f} %)"


def only(values: Sequence[object]) -> object | None:
    """The value that all share; None where they differ or there is none."""
    return values[0] if len(set(values)) == 1 else None
