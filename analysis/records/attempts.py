"""Attempts of all cells: what they took, what came of them, and when each was submitted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import AwareDatetime, BaseModel, ValidationError

from analysis.records.columns import ATTEMPTS
from analysis.records.validate import is_of_a_clock, taken_s
from analysis.table import types
from train.record.run import GOOD, RunRecord

#: What came of an attempt, where the status of its record does not say it.
REJECTED, NOT_PLANNED = "rejected", "not in the plan"
_SUBMITTED = ("site", "submitted_s")
#: Columns of ATTEMPTS that no record tells by itself.
JOINED = ("cell_id", "outcome", *_SUBMITTED)


class _Array(BaseModel):
    job_id: str | None  # of Slurm; null where sbatch refused
    units: tuple[tuple[str, ...], ...]  # cells of each element


class _Note(BaseModel):
    """Of .slurm/RUN.json, which each `make sweep` on a cluster writes, what is needed here."""

    schema_version: Literal[1]
    site: str
    submitted_at: AwareDatetime
    arrays: tuple[_Array, ...]


def attempt_rows(record: RunRecord) -> Iterator[dict[str, Any]]:
    """Columns of ATTEMPTS that the record tells."""
    nodes = len(set(record.world.hostnames)) if record.world else 0
    last = len(record.attempts)
    times = [time for each in record.attempts for time in (each.started_at, each.ended_at)]
    if not all(map(is_of_a_clock, times)):
        return  # so they are no hours of a machine
    for number, attempt in enumerate(record.attempts, start=1):
        seconds = max(0.0, (attempt.ended_at - attempt.started_at).total_seconds())
        repeated = 0.0
        if record.status in GOOD and number < last:
            kept = taken_s(e for e in record.epochs if e.attempt == attempt.number)
            repeated = max(0.0, seconds - kept)
        yield {
            "attempt": number, "status": attempt.status, "nodes": nodes or None,
            "ranks": record.config.gpus, "started_s": attempt.started_at.timestamp(),
            "seconds": seconds, "repeated_s": repeated,
        }  # fmt: skip


def submissions(folder: Path) -> pd.DataFrame:
    """A row per submission of a cell to Slurm, in the order of time: cell_id, site, submitted_s.
    Notes that cannot be read are left out."""
    rows = []
    for file in sorted((folder / ".slurm").glob("[!.]*.json")):
        with contextlib.suppress(OSError, ValidationError):
            note = _Note.model_validate_json(file.read_bytes())
            submitted = (note.site, note.submitted_at.timestamp())
            units = [unit for array in note.arrays if array.job_id for unit in array.units]
            rows += [(cell, *submitted) for unit in units for cell in unit]
    made = pd.DataFrame(rows, columns=["cell_id", *_SUBMITTED])
    return made.sort_values("submitted_s", kind="stable", ignore_index=True)


def attempts_frame(
    tables: dict[str, pd.DataFrame], planned: int, submitted: pd.DataFrame
) -> pd.DataFrame:
    """The frame of attempts. ``planned``: how many of the cells, the first, are in the plan;
    ``submitted``: see :func:`submissions`."""
    table = tables["attempts"]
    place = table["cell"].to_numpy()
    own = tables["cells"][["cell_id", "status", "kind"]].iloc[place].reset_index(drop=True)
    usable = own["kind"].isna() & (place < planned)
    # a cell that failed may have attempts that ended otherwise
    outcome = own["status"].where(usable, table["status"])
    outcome = outcome.mask((own["kind"] == "rejected").fillna(False), REJECTED)
    found = table.assign(
        cell_id=own["cell_id"],
        outcome=outcome.mask(place >= planned, NOT_PLANNED),
        repeated_s=table["repeated_s"].where(usable, 0.0),
        **_jobs(own["cell_id"], table["started_s"], submitted),
    )
    wanted = types(ATTEMPTS)
    found = found[list(wanted)].astype(wanted)
    # a cell whose job ended in the queue has a record of the time since its submission
    queued = (found["started_s"] == found["submitted_s"]).fillna(False)
    return found.assign(seconds=found["seconds"].mask(queued))


def _jobs(
    cells: pd.Series[str], started: pd.Series[float], submitted: pd.DataFrame
) -> dict[str, Any]:
    """The columns of the last submission of each cell before it started; null without one."""
    if submitted.empty:
        return dict.fromkeys(_SUBMITTED, pd.NA)
    left = pd.DataFrame({"cell_id": cells.astype(object), "at": started.to_numpy(np.float64)})
    left = left.rename_axis("row").reset_index().sort_values("at", kind="stable")
    found = pd.merge_asof(left, submitted, left_on="at", right_on="submitted_s", by="cell_id")
    found = found.sort_values("row")
    return {name: found[name].array for name in _SUBMITTED}
