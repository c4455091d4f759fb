"""Which planned cells are in no table, and why; and every run by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from analysis.records.gather import Problem
from analysis.table import Column, Table, count, frame, number
from analysis.topics.topic import NAMES, ranks_column

PROBLEMS: tuple[Column, ...] = (
    Column("cell", "string", "cell", wide=True),
    Column("kind", "string", "kind"),
    Column("status", "string", "status"),
    Column("rank", "Int64", "rank", only_if_varied=True),
    Column("what", "string", "what", wide=True),
    Column("where", "string", "where", only_if_varied=True),
    Column("what_to_do", "string", "what to do", wide=True),
)


def table(problems: Sequence[Problem]) -> Table:
    """One row per planned cell that is in no other table."""
    rows = [
        {
            "cell": item.cell_id, "kind": item.kind, "status": item.status, "rank": item.rank,
            "what": item.reason, "where": item.where, "what_to_do": item.what_to_do,
        }
        for item in problems
    ]  # fmt: skip
    return Table("cells_not_used", "Cells that are in no table", PROBLEMS, frame(rows, PROBLEMS),
                 folded=True)  # fmt: skip


def every_run(runs: pd.DataFrame) -> Table:
    """One row per usable run, for the page; runs.csv has all columns."""
    columns = (
        Column("cell_id", "string", "cell", wide=True),
        Column("status", "string", "status"),
        *NAMES,
        ranks_column(runs),
        Column("global_batch", "Int64", "global batch", only_if_varied=True),
        Column("seed", "Int64", "seed", format=count),
        Column("validation_accuracy", "Float64", "validation accuracy", format=number(3),
               note="validation_accuracy_why"),
        Column("validation_accuracy_why", "string"),
        Column("images_per_s", "Float64", "images/s", note="images_per_s_why"),
        Column("images_per_s_why", "string"),
        Column("train_s", "Float64", "training s"),
        Column("attempts", "Int64", "starts", only_if_varied=True),
        Column("nodes", "Int64", "nodes", only_if_varied=True),
        Column("hosts", "string", "hosts", only_if_varied=True),
    )  # fmt: skip
    wanted = [name for column in columns for name in column.types]
    return Table(
        "every_run",
        "Every run",
        columns,
        runs[wanted],
        intro="The folder of a cell has its config, its record and the logs of its ranks. To run a "
        "cell again, delete its record.json and say make sweep.",
        folded=True,
    )
