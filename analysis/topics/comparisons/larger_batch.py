"""What a technique keeps of its accuracy when the batch grows: smallest against largest batch.

Between these two scales of one technique and workload nothing but the batch is meant to differ, and
what makes it (ranks, images per rank, accumulated batches). Both are those of the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.records.frames import in_order
from analysis.records.labels import without_batch
from analysis.table import Column, Row, Table, count, estimates_as, frame, number
from analysis.topics.comparisons.arms import SERIES, arms, outcomes
from analysis.topics.comparisons.comparison import (
    CONDITION,
    DIFFERENCE,
    accuracies,
    compared,
    counts,
    difference_cells,
    runs_text,
)

ENDS = ("small", "large")


def _of_end(end: str, batch: str) -> tuple[Column, ...]:
    """CSV columns of one end; the page shows both in one cell, but for the accuracies."""
    return (
        Column(f"gpus_{end}", "Int64"),
        Column(f"accumulation_{end}", "Int64"),
        Column(f"global_batch_{end}", "Int64"),
        Column(f"steps_{end}", "Int64"),
        Column(f"n_{end}", "Int64"),
        Column(f"n_planned_{end}", "Int64"),
        Column(f"n_diverged_{end}", "Int64"),
        Column(f"diverged_{end}", estimate=True),
        Column(f"accuracy_{end}", estimate=True, heading=f"accuracy, {batch}", format=number(3),
               description="mean among runs that did not diverge, with Student's t interval"),
    )  # fmt: skip


def _both(row: Row, name: str) -> str:
    first, last = (count(row[f"{name}_{end}"]) for end in ENDS)
    return first if first == last else f"{first} → {last}"


COLUMNS = (
    Column("technique", "string"),
    CONDITION,
    Column("context", "string"),
    Column("framework", "string"),
    Column("ranks", None, heading="ranks", cell=lambda row: _both(row, "gpus"),
           description="smallest → largest batch, of the same rank count where one has both"),
    Column("batches", None, heading="global batch", cell=lambda row: _both(row, "global_batch"),
           description="where it grows within a run, that of its first epoch"),
    Column("steps", None, heading="steps", cell=lambda row: _both(row, "steps"),
           description="of a whole run; n/a where runs differ in it"),
    Column("runs", None, heading="runs",
           cell=lambda row: f"{runs_text(row, '_small')} / {runs_text(row, '_large')}",
           description="usable, at the smallest / at the largest batch, diverged ones included"),
    *_of_end("small", "smallest batch"),
    *_of_end("large", "largest batch"),
    replace(DIFFERENCE, heading="change (95 % interval)"),
)  # fmt: skip


def table(planned: pd.DataFrame, runs: pd.DataFrame, techniques: Sequence[str]) -> Table:
    """One row per technique and workload with more than one planned global batch; see COLUMNS.

    ``difference``: mean at the largest batch minus mean at the smallest. Where a batch is planned
    in several ways, both are of the largest rank count that has both; where none has, the smallest
    is of the fewest ranks and the largest of the most.
    """
    found = arms(outcomes(planned, runs))
    small, large = _ends(found)
    names = [[f"the {end} batch"] * len(small) for end in ("largest", "smallest")]
    result = compared(large, small, names[0], names[1])
    rows = {
        **{name: small[name].array for name in ("technique", "technique_label", "framework")},
        "context": [without_batch(context or "") for context in large["context"]],
        **_end("small", small), **_end("large", large),
        **difference_cells(result, small["n"] + large["n"], result.notes),
    }  # fmt: skip
    return Table(
        "larger_batch",
        "Larger batch: what accuracy each technique keeps",
        COLUMNS,
        in_order(frame(rows, COLUMNS), techniques),
        intro="The same technique, data and epochs at the smallest and at the largest global batch "
        "of this sweep. Exploratory: no correction for the number of rows.",
    )


def _ends(found: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Arms of the smallest and of the largest batch of each series, row by row."""
    series = found.groupby(list(SERIES), sort=False, dropna=False)
    marked = found.assign(
        series=series.ngroup(),
        smallest=found["global_batch"] == series["global_batch"].transform("min"),
        largest=found["global_batch"] == series["global_batch"].transform("max"),
    )
    marked = marked[~(marked["smallest"] & marked["largest"])]
    sides = [marked[marked[name]] for name in ("smallest", "largest")]
    common = sides[0][["series", "gpus"]].merge(sides[1][["series", "gpus"]])
    most = common.groupby("series")["gpus"].max()
    small, large = (_of_ranks(rows, most) for rows in sides)
    return (
        small.drop_duplicates("series", keep="first").sort_values("series").reset_index(drop=True),
        large.drop_duplicates("series", keep="last").sort_values("series").reset_index(drop=True),
    )


def _of_ranks(rows: pd.DataFrame, ranks: pd.Series[int]) -> pd.DataFrame:
    """By rising rank count; of a series in ``ranks`` only that count."""
    wanted = rows["series"].map(ranks)
    return rows[wanted.isna() | (rows["gpus"] == wanted)].sort_values("gpus", kind="stable")


def _end(end: str, arms: pd.DataFrame) -> dict[str, Any]:
    names = ("gpus", "accumulation", "global_batch", "steps")
    return {
        **{f"{name}_{end}": arms[name].array for name in names},
        **counts(arms, f"_{end}", of=""),
        **estimates_as(f"accuracy_{end}", accuracies(arms)),
    }
