"""A table as a reader sees it: headings, cells as text, notes; one for page, text and terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd

Row = dict[str, Any]
NOT_AVAILABLE = "n/a"
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Column:
    head: str
    align: Literal["left", "right"] = "right"
    about: str = ""  # a footnote: what the numbers are
    wide: bool = False  # holds sentences


@dataclass(frozen=True)
class Table:
    """``key`` is the name of its CSV (without ending) and its anchor."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()  # why values are n/a, in the order of their raised numbers
    intro: str = ""
    empty: str = "Nothing to show."
    csv: bool = True

    def __post_init__(self) -> None:
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(f"{self.key}: {len(self.columns)} columns, yet a row is {wrong[0]}")

    @property
    def footnotes(self) -> tuple[str, ...]:
        return tuple(f"{column.head}: {column.about}" for column in self.columns if column.about)


@dataclass
class Notes:
    """Gives each reason one raised number per table, so that a cell stays short."""

    reasons: list[str] = field(default_factory=list)

    def mark(self, reason: Any) -> str:
        """The raised number of a reason; empty for no reason."""
        if pd.isna(reason) or not reason:
            return ""
        if reason not in self.reasons:
            self.reasons.append(str(reason))
        return str(self.reasons.index(reason) + 1).translate(_RAISED)

    def missing(self, reason: Any) -> str:
        return f"{NOT_AVAILABLE} {self.mark(reason)}".strip()

    def lines(self) -> tuple[str, ...]:
        return tuple(
            f"{str(i).translate(_RAISED)} {reason}"
            for i, reason in enumerate(self.reasons, start=1)
        )


def number(value: Any, digits: int) -> str:
    """Fixed digits; thousands apart; n/a for a null."""
    return NOT_AVAILABLE if pd.isna(value) else f"{float(value):,.{digits}f}"


def significant(value: Any, digits: int = 3) -> str:
    """At least ``digits`` significant digits, whole numbers never rounded away."""
    if pd.isna(value):
        return NOT_AVAILABLE
    size = abs(float(value))
    decimals = 0
    while decimals < 6 and 0 < size < 10 ** (digits - 1 - decimals):
        decimals += 1
    return f"{float(value):,.{decimals}f}"


def count(value: Any) -> str:
    return NOT_AVAILABLE if pd.isna(value) else f"{int(value):,}"


def percent(value: Any) -> str:
    return NOT_AVAILABLE if pd.isna(value) else f"{100 * float(value):.0f} %"


def interval(low: Any, high: Any, digits: int) -> str:
    return f"[{float(low):+.{digits}f}, {float(high):+.{digits}f}]"


def text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def plain_rows(table: pd.DataFrame) -> list[Row]:
    """The rows with None for every null: <NA> has no truth value."""
    rows = table.to_dict(orient="records")
    return [{str(k): None if pd.isna(v) else v for k, v in row.items()} for row in rows]


def with_context(row: Row) -> str:
    """Technique, and what else tells this row from its neighbours."""
    context = text(row["context"])
    return f"{row['technique_label']}; {context}" if context else str(row["technique_label"])


def joined(parts: Sequence[str], by: str = " ") -> str:
    return by.join(part for part in parts if part)
