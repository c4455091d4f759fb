"""Arms of a comparison: the planned cells of one technique at one scale, and what came of them.

An arm is built from the plan and not from what is left of it, so that runs that are lost cannot
make a comparison vanish or move it to a smaller scale. Accuracies are those of runs that completed.
Runs that diverged are counted, and have no accuracy: no interval of a mixture means anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.stats.intervals import grouped_moments
from analysis.topics.names import reasons

#: Where an arm competes: weak and strong cells stay apart, and batches that are made of other
#: parts, since what normalises a part sees other images.
PLACE = ("gpus", "global_batch", "accumulation", "scaling")
#: One technique with one set of settings, on one workload.
SERIES = ("workload", "framework", "technique_label")
_OUTCOME = ("status", "validation_accuracy", "validation_accuracy_why", "images", "steps", "target")


def outcomes(planned: pd.DataFrame, runs: pd.DataFrame, more: Sequence[str] = ()) -> pd.DataFrame:
    """Planned cells whose config is known, with what their runs gave; see records.columns.PLANNED.

    Adds ``arm``, the number of the cell's arm; ``usable``, ``completed``; ``accuracy`` of a
    completed run; and the columns ``more`` of the runs.
    """
    columns = ["cell_id", *_OUTCOME, *more]
    known = planned[planned["known"].fillna(False).astype(bool)]
    kept = [name for name in known if name == "cell_id" or name not in columns]
    cells = known[kept].merge(runs[columns], on="cell_id", how="left")
    completed = cells["status"].eq("completed").fillna(False).astype(bool)
    return cells.assign(
        arm=cells.groupby([*SERIES, *PLACE], sort=False, dropna=False).ngroup(),
        usable=cells["status"].notna(),
        completed=completed,
        accuracy=cells["validation_accuracy"].where(completed),
    )


def arms(cells: pd.DataFrame) -> pd.DataFrame:
    """One row per arm, by its number, from the frame of :func:`outcomes`.

    Beside SERIES, PLACE, technique and context: ``planned``, ``usable``, ``diverged`` count cells;
    ``n``, ``mean``, ``sd`` are of the accuracies; ``images`` a completed run's mean; ``steps`` null
    where runs differ; ``stops``: a target ends its runs; ``why`` runs have no accuracy.
    """
    about = ["technique", *SERIES, "context", *PLACE]
    table = cells.drop_duplicates("arm").sort_values("arm")[about].reset_index(drop=True)
    number, count = cells["arm"].to_numpy(), len(table)
    completed = cells[cells["completed"]]
    found = grouped_moments(numbers(cells["accuracy"]), number, count)
    steps = completed.groupby("arm")["steps"].agg(["min", "max"]).reindex(range(count))
    why = completed.dropna(subset="validation_accuracy_why").groupby("arm")
    usable = np.bincount(number, cells["usable"], count).astype(int)
    finished = np.bincount(number, cells["completed"], count).astype(int)
    return table.assign(
        planned=np.bincount(number, minlength=count),
        usable=usable,
        diverged=usable - finished,
        n=found.n.astype(int),
        mean=found.mean,
        sd=found.sd,
        images=completed.groupby("arm")["images"].mean().reindex(range(count)).astype("Float64"),
        steps=steps["min"].where(steps["min"] == steps["max"]).astype("Int64"),
        stops=np.bincount(number, cells["target"].notna(), count) > 0,
        why=why["validation_accuracy_why"].agg(reasons).reindex(range(count)),
    )


def numbers(column: pd.Series[Any]) -> Any:
    """As floats, nan for a null."""
    return column.to_numpy(float, na_value=np.nan)


def unknown_cells(planned: pd.DataFrame) -> int:
    """Planned cells of which not even the config could be read."""
    return int((~planned["known"].fillna(False).astype(bool)).sum())
