"""What every table is made of: typed columns, estimates with intervals, and how both are written.

A topic declares its columns once. They give the frame its types, the CSV its documentation, the
page its headings and footnotes. A null is ``<NA>`` with its reason, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pandas as pd
from numpy.typing import ArrayLike

from analysis import fmt

Row = dict[str, Any]
DType = Literal["string", "Int64", "Float64", "boolean", "object"]
#: Columns that an estimate fills, after its own name.
_PARTS: dict[str, DType] = {
    "": "Float64", "_low": "Float64", "_high": "Float64", "_n": "Int64", "_note": "string",
}  # fmt: skip
#: Rows of a table that the page has whole, and of a longer one.
MOST_SORTED, FIRST_ROWS = 1000, 200
_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Names(tuple[str, ...]):
    """A list in a frame: its entries stay apart, and only what writes it joins them."""

    __slots__ = ()

    def __str__(self) -> str:
        return ", ".join(self)


class Estimate(NamedTuple):
    """A value with its 95 % interval, from ``n`` runs.

    ``note``: why there is no value or no interval, or what to know of them.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    note: str | None = None

    def text(self, write: Callable[[Any], str]) -> str:
        """``0.750 (0.747 to 0.753)``; without an interval the value alone."""
        if pd.isna(self.value):
            return fmt.NOT_AVAILABLE
        if pd.isna(self.low) and pd.isna(self.high):
            return write(self.value)
        # one end alone is a bound, as of a censored time
        if pd.isna(self.high):
            return f"> {write(self.low)}"
        if pd.isna(self.low):
            return f"< {write(self.high)}"
        return f"{write(self.value)} ({write(self.low)} to {write(self.high)})"

    def columns(self, name: str) -> Row:
        """As the cells of a row; see :class:`Column`."""
        return dict(zip((name + part for part in _PARTS), self, strict=True))


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Args:
        name: in the frame and its CSV.
        dtype: of pandas, object for lists; None for a column that ``cell`` alone writes.
        heading: on the page; a column without one is in the CSV only.
        description: what the numbers are: a footnote of the page, and the CSV's documentation.
        format: writes a value; by default text, a whole number, or three significant digits.
        cell: writes the cell from the whole row, where one value does not say it.
        estimate: the column holds an Estimate: NAME, NAME_low, NAME_high, NAME_n and NAME_note.
        note: name of the column with the reason why a value is null, or with what to know of it.
        only_if_varied: left out of the page where all rows have the same value.
        wide: holds sentences.
        path: where a record has the value, as ``world.nodes``; ``last``: of a list its last entry,
            else a list's entries are rows.
    """

    name: str
    dtype: DType | None = "Float64"
    heading: str = ""
    description: str = ""
    unit: str = ""
    format: Callable[[Any], str] | None = None
    cell: Callable[[Row], str] | None = None
    estimate: bool = False
    note: str = ""
    only_if_varied: bool = False
    wide: bool = False
    path: str = ""

    @property
    def types(self) -> dict[str, DType]:
        """Columns of the frame."""
        if self.dtype is None:
            return {}
        return {self.name + part: t for part, t in _PARTS.items()} if self.estimate else {
            self.name: self.dtype
        }  # fmt: skip

    @property
    def align(self) -> Literal["left", "right"]:
        return "left" if self.wide or self.dtype in (None, "string", "object") else "right"

    @property
    def title(self) -> str:
        return f"{self.heading} ({self.unit})" if self.unit else self.heading

    def write(self, row: Row) -> str:
        """The cell of one row, without the mark of its note."""
        if self.cell is not None:
            return self.cell(row)
        write = self.format or _WRITERS[self.dtype or "string"]
        if self.estimate:
            return estimate_in(row, self.name).text(write)
        return write(row[self.name])


def estimate_in(row: Mapping[str, Any], name: str) -> Estimate:
    """The estimate that a row holds under ``name``."""
    return Estimate(*(row[name + part] for part in _PARTS))


def estimates_as(name: str, found: pd.DataFrame) -> dict[str, Any]:
    """As :meth:`Estimate.columns`, of a frame with the parts of an Estimate per row."""
    return {
        name + end: found[part].array for end, part in zip(_PARTS, Estimate._fields, strict=True)
    }


def types(columns: Iterable[Column]) -> dict[str, str]:
    """Name -> dtype of a frame of these columns."""
    return {name: dtype for column in columns for name, dtype in column.types.items()}


def frame(
    rows: Sequence[Mapping[str, Any]] | Mapping[str, ArrayLike], columns: Iterable[Column]
) -> pd.DataFrame:
    """Rows, or columns, as a frame of nullable types; all columns are there even without a row."""
    wanted = types(columns)
    return pd.DataFrame(rows, columns=list(wanted)).astype(wanted)


@dataclass(frozen=True)
class Shown:
    """A table as a reader sees it, on page and terminal alike."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]  # in the order of their raised numbers

    @property
    def footnotes(self) -> tuple[tuple[str, str], ...]:
        """(heading, description) of the columns that need one."""
        return tuple((c.heading, c.description) for c in self.columns if c.description)


@dataclass(frozen=True)
class Table:
    """What a topic says in rows. ``key``: its anchor, and the name of its CSV without ending."""

    key: str
    title: str
    columns: tuple[Column, ...]
    data: pd.DataFrame
    intro: str = ""
    folded: bool = False  # the page shows it on demand

    @property
    def page_rows(self) -> int:
        """All rows, or of many the first, which are not sorted there: the largest of a part may
        not be the largest. The CSV has all."""
        return len(self.data) if len(self.data) <= MOST_SORTED else FIRST_ROWS

    def shown(self, most: int | None = None) -> Shown:
        """``most``: rows; by default those of the page."""
        columns = tuple(
            c for c in self.columns
            if c.heading and not (c.only_if_varied and self.data[c.name].nunique(dropna=False) <= 1)
        )  # fmt: skip
        notes: dict[str, int] = {}
        rows = tuple(
            tuple(_marked(column, row, notes) for column in columns)
            for row in plain_rows(self.data.head(self.page_rows if most is None else most))
        )
        lines = tuple(f"{_raised(number)} {note}" for note, number in notes.items())
        return Shown(columns, rows, lines)


def _marked(column: Column, row: Row, notes: dict[str, int]) -> str:
    """A cell with the raised number of its note; ``notes``: the numbers that notes have."""
    name = column.note or (f"{column.name}_note" if column.estimate else "")
    note = row[name] if name else None
    mark = _raised(notes.setdefault(note, len(notes) + 1)) if note else ""
    # no break between the value and its mark
    return fmt.joined([column.write(row), mark], "\u00a0")


def _raised(number: int) -> str:
    return str(number).translate(_RAISED)


def plain_rows(table: pd.DataFrame) -> list[Row]:
    """The rows with None for every null: <NA> has no truth value."""
    # column by column, which takes a tenth of the time of asking each cell
    nulls: Any = None  # which the stubs of pandas do not know
    columns = [column.to_numpy(dtype=object, na_value=nulls) for _, column in table.items()]
    names = [str(name) for name in table]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


_WRITERS: dict[str, Callable[[Any], str]] = {
    "string": fmt.text,
    "object": fmt.text,
    "Int64": fmt.count,
    "Float64": fmt.significant,
    "boolean": lambda value: fmt.NOT_AVAILABLE if pd.isna(value) else "yes" if value else "no",
}
