"""Rows of many records as columns: the form in which they are cached and made into frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from analysis.records import extract
from analysis.records.columns import LABELS, OWN, RUNS
from analysis.table import plain_rows, types
from train.config.run import RunConfig
from train.record.measurements import EpochRecord
from train.record.run import RunRecord

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


#: Table -> its columns and their types. Rows of ``cells`` are cells, those of another table are of
#: a usable one.
TABLES: dict[str, dict[str, str]] = {
    "cells": {
        **{name: dtype for name, dtype in types(RUNS).items() if name not in LABELS},
        **dict.fromkeys(("settings", "kind", "reason", "where", "what_to_do"), "string"),
        "log_tail": "object",
        "rank": "Int64",
    },
    **{table: {"cell_id": "string", **types(own)} for table, own in OWN.items()},
}
Gathered = dict[str, pd.DataFrame]


def gather(found: Iterable[RunRecord | Unusable]) -> Gathered:
    """Tables of what was found of each cell."""
    columns: dict[str, dict[str, list[Any]]] = {
        table: {name: [] for name in own} for table, own in TABLES.items()
    }
    for one in found:
        if isinstance(one, Unusable):
            row = one.problem.__dict__ | (extract.config_row(one.config) if one.config else {})
            row |= extract.totals(one.epochs) if one.epochs else {}
        else:
            row = extract.run_row(one)
        for name, values in columns["cells"].items():
            values.append(row.get(name))
        if isinstance(one, Unusable):
            continue
        for table, values_of in extract.VALUES.items():
            own = values_of(one)
            own["cell_id"] = [one.cell_id] * len(next(iter(own.values())))
            for name, values in own.items():
                columns[table][name].extend(values)
    return {
        table: pd.DataFrame(
            {name: array_of(own.pop(name), dtype) for name, dtype in TABLES[table].items()},
            copy=False,
        )
        for table, own in columns.items()
    }


def array_of(values: Any, dtype: str) -> Any:
    """As pandas has it. Numbers pass as floats, with nan for a null, which no record holds: so
    pandas does not look at each for what it could be."""
    plain = values if dtype in ("string", "object") else np.asarray(values, dtype=np.float64)
    return pd.Series(plain, dtype=dtype).array


def of_cells(cells: Sequence[str], parts: Sequence[Gathered]) -> Gathered:
    """Tables of these cells, in this order, from several parts, which are used up: table by table,
    and without a copy where none is needed, since those of epochs are large."""
    found: Gathered = {}
    wanted: Any = pd.Index([*cells], dtype="string")
    for name in TABLES:
        own = [part.pop(name) for part in parts]
        full = [table for table in own if len(table)] or own[:1]
        table = pd.concat(full, ignore_index=True) if full[1:] else full[0]
        place = wanted.get_indexer(table["cell_id"])
        order = np.argsort(place, kind="stable")[(place < 0).sum() :]
        as_it_is = np.array_equal(order, np.arange(len(table)))
        found[name] = table if as_it_is else table.iloc[order].reset_index(drop=True)
    return found


def problems_in(cells: pd.DataFrame) -> list[Problem]:
    found = cells.loc[cells["kind"].notna(), [*Problem.__dataclass_fields__]]
    return [Problem(**row) for row in plain_rows(found)]
