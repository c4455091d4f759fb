"""Rows of many records as columns: the form in which they are cached and made into frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from analysis.records import extract
from analysis.records.attempts import JOINED, attempt_rows
from analysis.records.columns import (
    ATTEMPTS,
    CLASSES,
    EPOCH_VALUES,
    GOALS,
    LABELS,
    RANKS,
    RUNS,
    TRAFFIC,
)
from analysis.table import plain_rows, types
from train.record.run import EpochRecord, RunRecord

#: missing: no record; failed: the record says so; rejected: it cannot be compared;
#: unreadable: it is no record at all.
Kind = Literal["missing", "failed", "rejected", "unreadable"]
KINDS: tuple[Kind, ...] = ("failed", "rejected", "unreadable", "missing")


@dataclass(frozen=True)
class Problem:
    """One planned cell that is in no table."""

    cell_id: str
    kind: Kind
    status: str  # of the record; "none" where there is no readable one
    reason: str
    where: str | None = None
    what_to_do: str | None = None
    rank: int | None = None
    log_tail: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # that met


class Cell(NamedTuple):
    """What was found of one planned cell; usable where there is no problem.

    epochs: that ended, of a cell without a record.
    """

    cell_id: str
    record: RunRecord | None
    problem: Problem | None
    epochs: Sequence[EpochRecord] = ()


def _without(columns: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: dtype for name, dtype in columns.items() if name not in names}


_ABOUT_RUN = ("cell_id", "status", "condition", "technique", "technique_label", "context", "gpus",
              "global_batch", "target", "seed")  # fmt: skip
#: Table -> its columns and their types. Rows of ``cells`` are cells; ``cell`` is a row of it, of
#: one without a problem but in ``attempts``.
TABLES: dict[str, dict[str, str]] = {
    "cells": {
        **_without(types(RUNS), *LABELS),
        **dict.fromkeys(("settings", "kind", "reason", "where", "what_to_do"), "string"),
        "log_tail": "object",
        "rank": "Int64",
    },
    "epochs": {"cell": "int64", **types(EPOCH_VALUES)},
    "classes": {"cell": "int64", **_without(types(CLASSES), *_ABOUT_RUN)},
    "goals": {"cell": "int64", **_without(types(GOALS), *_ABOUT_RUN)},
    "traffic": {"cell": "int64", **_without(types(TRAFFIC), "cell_id")},
    "ranks": {"cell": "int64", **_without(types(RANKS), *_ABOUT_RUN, "oversubscribed")},
    "attempts": {"cell": "int64", **_without(types(ATTEMPTS), *JOINED)},
}  # fmt: skip
#: Table -> what a usable record has for it: rows, or columns, which take less time of many rows.
_ROWS = {"classes": extract.class_rows, "traffic": extract.traffic_rows, "goals": extract.goal_rows}
_COLUMNS = {"epochs": extract.epoch_values, "ranks": extract.rank_values}
Gathered = dict[str, pd.DataFrame]


def gather(cells: Iterable[Cell]) -> Gathered:
    """Tables of these cells; of a cell with a problem the config, if known, and the problem."""
    columns: dict[str, dict[str, list[Any]]] = {
        table: {name: [] for name in own} for table, own in TABLES.items()
    }

    def add(table: str, place: int, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            for name, values in columns[table].items():
                values.append(place if name == "cell" else row.get(name))

    for place, cell in enumerate(cells):
        record = cell.record
        if record is not None:
            add("attempts", place, attempt_rows(record))
        if cell.problem is not None or record is None:
            add("cells", place, [_problem_row(cell)])
            continue
        add("cells", place, [extract.run_row(record)])
        for table, rows_of in _ROWS.items():
            add(table, place, rows_of(record))
        for table, values_of in _COLUMNS.items():
            for name, values in values_of(record):
                columns[table][name].extend(values)
            columns[table]["cell"].extend([place] * len(values))
    return {
        table: pd.DataFrame(
            {name: _array(own.pop(name), dtype) for name, dtype in TABLES[table].items()},
            copy=False,
        )
        for table, own in columns.items()
    }


def together(parts: Sequence[Gathered]) -> Gathered:
    """Tables of several parts, cells one after the other; the parts are used up."""
    if len(parts) == 1:
        return parts[0]
    sizes = [len(part["cells"]) for part in parts]
    for part, first in zip(parts, np.cumsum([0, *sizes]), strict=False):
        for name in TABLES:
            if name != "cells":
                part[name]["cell"] += first
    # table by table, so that never all of it is there twice
    return {
        name: pd.concat([part.pop(name) for part in parts], ignore_index=True) for name in TABLES
    }


def chosen(tables: Gathered, order: np.ndarray[Any, Any]) -> Gathered:
    """The cells at these places, in this order."""
    if np.array_equal(order, np.arange(len(tables["cells"]))):
        return tables
    new = np.full(len(tables["cells"]), -1, dtype=np.int64)
    new[order] = np.arange(len(order))
    made = {"cells": tables["cells"].iloc[order].reset_index(drop=True)}
    for name in TABLES:
        if name != "cells":
            places = new[tables[name]["cell"].to_numpy()]
            by_place = np.argsort(places, kind="stable")
            by_place = by_place[np.searchsorted(places[by_place], 0) :]
            made[name] = tables[name].iloc[by_place].assign(cell=places[by_place])
            made[name].reset_index(drop=True, inplace=True)
    return made


def problems_in(cells: pd.DataFrame) -> list[Problem]:
    found = cells.loc[cells["kind"].notna(), [*Problem.__dataclass_fields__]]
    return [Problem(**row) for row in plain_rows(found)]


def _problem_row(cell: Cell) -> dict[str, Any]:
    assert cell.problem is not None
    epochs: Sequence[EpochRecord] = cell.epochs
    row = {**cell.problem.__dict__}
    if cell.record is not None:
        row |= extract.config_row(cell.record.config)
        # what a rejected record says of its epochs may be false
        epochs = cell.record.epochs if cell.problem.kind == "failed" else ()
    return row | (extract.totals(epochs) if epochs else {})


def _array(values: list[Any], dtype: str) -> Any:
    """As pandas would make it, without looking at each value for what it could be."""
    if dtype == "int64":
        return np.array(values, dtype=np.int64)
    if dtype == "Float64":
        numbers = np.array(values, dtype=np.float64)  # None becomes NaN, which no record holds
        return pd.arrays.FloatingArray(numbers, np.isnan(numbers))
    if dtype == "Int64" and None not in values:
        return pd.arrays.IntegerArray(
            np.array(values, dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
        )
    return pd.Series(values, dtype=dtype).array
