"""Which machines and which code the runs used, and what differs between them."""

from __future__ import annotations

from itertools import groupby

import pandas as pd

from analysis.provenance import machines, provenance_rows
from analysis.table import Column, Row, Table, frame

COLUMNS: tuple[Column, ...] = (
    Column("what", "string", "what"),
    Column("value", "string", "value", wide=True),
    Column("runs", "Int64", "runs"),
)
#: Values of one kind that the table names.
MOST = 20


def table(runs: pd.DataFrame) -> Table:
    """(what, value, number of runs) for every value found, the most common first."""
    found = [("machine", line, count) for line, count in machines(runs)]
    found += provenance_rows(runs)
    rows: list[Row] = []
    for what, group in groupby(found, key=lambda row: row[0]):
        values = [{"what": what, "value": value, "runs": count} for _, value, count in group]
        rows += values[:MOST]
        if rest := values[MOST:]:
            others = sum(row["runs"] for row in rest)
            rows.append({"what": what, "value": f"{len(rest)} others", "runs": others})
    return Table("provenance", "Machines and code", COLUMNS, frame(rows, COLUMNS), folded=True)
