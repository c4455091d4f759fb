"""The comparison of frameworks as a table for a reader."""

from __future__ import annotations

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
    significant,
    with_context,
)
from analysis.frameworks import MARGIN
from analysis.stats import ONE_RUN
from analysis.tables import difference_text, ranks_column


def frameworks_view(table: pd.DataFrame, runs: pd.DataFrame) -> Table:
    notes = Notes()
    family = int(table["family"].iloc[0]) if len(table) else 0
    columns = (
        Column("condition", "left"),
        Column("compared", "left", "the first of the two over, or minus, the second"),
        ranks_column(runs),
        Column("global batch"),
        Column("runs", about="of the first / of the second, diverged ones included"),
        Column("images/s", about="geometric mean over completed runs, steady state: first / "
               "second"),
        Column("throughput ratio", about="first over second: ratio of the geometric means [95 % "
               "Welch interval of the logarithm]"),
        Column("throughput", "left", "at 0.05, adjusted by Holm's method for the family's "
               f"{family} tests of a difference"),
        Column("difference in accuracy", about="first minus second, validation accuracy after the "
               "final epoch (fraction) over all runs, a diverged one counting as chance [95 % "
               "Welch interval]"),
        Column("accuracy", "left", f"different: at 0.05 within the same family. Equal to within "
               f"{MARGIN:g}: two one-sided tests, 0.05 by Holm's method. No difference shown: "
               "nor equality; the interval says how large a difference may be hidden in the "
               "scatter between seeds"),
    )  # fmt: skip
    return Table(
        "frameworks",
        "Frameworks: the same cell under another library",
        columns,
        tuple(_row(row, notes) for row in plain_rows(table)),
        notes.lines(),
        intro="One planned family beside that of the techniques: the same technique, data, ranks "
        "and batches, with gradients averaged by another library.",
        empty="The sweep has one framework: there is nothing to compare.",
    )


def _row(row: Row, notes: Notes) -> tuple[str, ...]:
    return (
        with_context(row),
        f"{row['reference']} / {row['framework']}",
        count(row["gpus"]),
        count(row["global_batch"]),
        f"{row['n_reference']} / {row['n']}",
        f"{significant(row['images_per_s_reference'])} / {significant(row['images_per_s'])}",
        _ratio(row, notes),
        str(row["speed"]),
        difference_text(row, notes, row["difference_why"]),
        str(row["verdict"]),
    )


def _ratio(row: Row, notes: Notes) -> str:
    value, low, high, why = (row[f"ratio{part}"] for part in ("", "_low", "_high", "_why"))
    if value is None:
        return notes.missing(why)
    if low is not None:
        return f"{number(value, 2)} [{number(low, 2)}, {number(high, 2)}]"
    mark = f"({ONE_RUN})" if why == ONE_RUN else notes.mark(why)
    return joined([number(value, 2), mark])
