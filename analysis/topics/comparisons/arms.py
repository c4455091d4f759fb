"""Arms of a comparison: the planned cells of one technique at one scale, and what came of them.

An arm is built from the plan and not from what is left of it, so that runs that are lost cannot
make a comparison vanish or move it to a smaller scale. Accuracies are those of runs that completed.
Runs that diverged are counted, and have no accuracy: no interval of a mixture means anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.stats.intervals import grouped_moments
from analysis.table import Column, types

#: Where an arm competes: weak and strong cells stay apart, and batches that are made of other
#: parts, since what normalises a part sees other images.
PLACE = ("gpus", "global_batch", "accumulation", "scaling")
#: One technique with one set of settings, on one workload.
SERIES = ("workload", "framework", "technique_label")
#: The frame of planned cells; null where a cell's config could not be read.
PLANNED = (
    Column("cell_id", "string"),
    Column("state", "string", description="usable, missing, failed, rejected or unreadable"),
    Column("known", "boolean", description="its config could be read"),
    Column("technique", "string"),
    Column("technique_label", "string", description="with the settings that tell it from others"),
    Column("context", "string", description="other settings that differ within the sweep"),
    Column("workload", "string", description="what is trained on what, for how long; the "
           "framework is a column of its own"),
    Column("gpus", "Int64"),
    Column("global_batch", "Int64"),
    Column("accumulation", "Int64"),
    Column("scaling", "string"),
    Column("framework", "string"),
    Column("seed", "Int64"),
)  # fmt: skip
#: Runs that differ in it answer different questions.
_WORKLOAD = ("dataset", "image_size", "model", "pretrained", "data_fraction", "validate_on",
             "partition", "target", "epochs", "deterministic")  # fmt: skip
_OUTCOME = ("status", "validation_accuracy", "validation_accuracy_why", "images", "steps", "target")


def workload(runs: pd.DataFrame) -> pd.Series[str]:
    """Per run: the text that runs of the same data, model and epochs share."""
    parts = runs[list(_WORKLOAD)].astype("string").fillna("")
    return parts[_WORKLOAD[0]].str.cat(parts[list(_WORKLOAD[1:])], sep="|")


def planned_from_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The frame of planned cells as far as usable runs tell: what is lost stays unknown."""
    told = runs if "workload" in runs else runs.assign(workload=workload(runs))
    wanted = types(PLANNED)
    return told.assign(state="usable", known=True)[list(wanted)].astype(wanted)


def outcomes(planned: pd.DataFrame, runs: pd.DataFrame, more: Sequence[str] = ()) -> pd.DataFrame:
    """Planned cells whose config is known, with what their runs gave; see PLANNED.

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
    reasons = completed.dropna(subset="validation_accuracy_why").groupby("arm")
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
        why=reasons["validation_accuracy_why"].agg(listed).reindex(range(count)),
    )


def numbers(column: pd.Series[Any]) -> Any:
    """As floats, nan for a null."""
    return column.to_numpy(float, na_value=np.nan)


def listed(reasons: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(reasons))


def unknown_cells(planned: pd.DataFrame) -> int:
    """Planned cells of which not even the config could be read."""
    return int((~planned["known"].fillna(False).astype(bool)).sum())
