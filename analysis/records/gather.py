"""Rows of many records as columns: the form in which they are cached and made into frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from analysis.records import extract
from analysis.records.columns import LABELS, OWN, RUNS
from analysis.table import Row, plain_rows, types
from train.config.run import RunConfig
from train.record.run import EpochRecord, RunRecord

#: missing: no record; failed: the record says so; rejected: it cannot be compared;
#: unreadable: it is no record at all.
Kind = Literal["missing", "failed", "rejected", "unreadable"]


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


class Unusable(NamedTuple):
    """A planned cell without a usable record, with what is known of it all the same."""

    problem: Problem
    config: RunConfig | None
    epochs: Sequence[EpochRecord] = ()  # that ended


#: Table -> its columns and their types. Rows of ``cells`` are cells. A row of another table is of
#: a usable one: ``cell`` is its row.
TABLES: dict[str, dict[str, str]] = {
    "cells": {
        **{name: dtype for name, dtype in types(RUNS).items() if name not in LABELS},
        **dict.fromkeys(("settings", "kind", "reason", "where", "what_to_do"), "string"),
        "log_tail": "object",
        "rank": "Int64",
    },
    **{table: {"cell": "int64", **types(own)} for table, own in OWN.items()},
}
Gathered = dict[str, pd.DataFrame]


def gather(found: Iterable[RunRecord | Unusable]) -> Gathered:
    """Tables of what was found of each cell."""
    columns: dict[str, dict[str, list[Any]]] = {
        table: {name: [] for name in own} for table, own in TABLES.items()
    }
    for place, one in enumerate(found):
        row = _problem_row(one) if isinstance(one, Unusable) else extract.run_row(one)
        for name, values in columns["cells"].items():
            values.append(row.get(name))
        if isinstance(one, Unusable):
            continue
        for table, values_of in extract.VALUES.items():
            own = values_of(one)
            columns[table]["cell"].extend([place] * len(next(iter(own.values()))))
            for name, values in own.items():
                columns[table][name].extend(values)
    return {
        table: pd.DataFrame(
            {name: _array(own.pop(name), dtype) for name, dtype in TABLES[table].items()},
            copy=False,
        )
        for table, own in columns.items()
    }


def together(parts: Sequence[Gathered]) -> Gathered:
    """Tables of several parts, cells one after the other; the parts are used up."""
    sizes = [len(part["cells"]) for part in parts]
    for part, first in zip(parts, np.cumsum([0, *sizes]), strict=False):
        for name in OWN:
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
    for name in OWN:
        places = new[tables[name]["cell"].to_numpy()]
        moved = tables[name].assign(cell=places)[places >= 0]
        made[name] = moved.sort_values("cell", kind="stable", ignore_index=True)
    return made


def problems_in(cells: pd.DataFrame) -> list[Problem]:
    found = cells.loc[cells["kind"].notna(), [*Problem.__dataclass_fields__]]
    return [Problem(**row) for row in plain_rows(found)]


def _problem_row(of: Unusable) -> Row:
    config = extract.config_row(of.config) if of.config else {}
    return of.problem.__dict__ | config | (extract.totals(of.epochs) if of.epochs else {})


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
