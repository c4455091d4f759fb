"""What is listed rather than computed: cells in no table, and where the numbers come from."""

from __future__ import annotations

from collections.abc import Sequence

from analysis.display import Column, Table
from analysis.load import Problem


def problems_view(problems: Sequence[Problem]) -> Table:
    columns = (
        Column("cell", "left", wide=True), Column("kind", "left"), Column("status", "left"),
        Column("rank"), Column("what", "left", wide=True), Column("where", "left"),
        Column("what to do", "left", wide=True),
    )  # fmt: skip
    rows = tuple(
        (
            item.cell_id, item.kind, item.status, "" if item.rank is None else str(item.rank),
            item.reason, item.where or "", item.what_to_do or "",
        )
        for item in problems
    )  # fmt: skip
    return Table(
        "cells_not_used",
        "Cells not in the tables",
        columns,
        rows,
        empty="None: every planned cell is in the tables.",
    )


def provenance_view(rows: Sequence[tuple[str, str, int]]) -> Table:
    return Table(
        "provenance",
        "Provenance",
        (Column("what", "left"), Column("value", "left", wide=True), Column("runs")),
        tuple((what, value, str(runs)) for what, value, runs in rows),
        empty="No usable run.",
        csv=False,
    )
