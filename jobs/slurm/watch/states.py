"""What a cell does on a cluster, in a word and a reason: by its files and by its last job.

A record that is newer than the submission wins over what the queue said: it is written before the
job ends, and the queue may tell of the job for minutes after.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from jobs.cell.state import (
    ENDING,
    NEW,
    NOT_SUBMITTED,
    RUNNING,
    STARTING,
    UNKNOWN,
    WAITING,
    CellState,
)
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import Submitted
from jobs.slurm.watch.endings import seconds_of


def by_files(cell: CellState, job: Submitted | None = None) -> CellState:
    """A cell that was never submitted; with ``job`` one of which Slurm gives no answer."""
    if cell.attempt is not None:
        began_at = cell.attempt.started_at
        cell = replace(cell, doing=RUNNING, why="as its files say", cause="", began_at=began_at)
    elif job is not None and not is_of(cell, job):
        cell = replace(cell, doing=UNKNOWN, why="it was submitted", cause="")
    elif cell.status == NEW:
        cell = replace(cell, doing=NOT_SUBMITTED, why="")
    return cell if job is None else gone(cell, job)


def gone(cell: CellState, job: Submitted) -> CellState:
    """A cell whose last job is not in the queue any more: as its record says."""
    return replace(cell, job=job.job, log=job.log)


def undecided(cell: CellState, job: Submitted, doing: str, why: str) -> CellState:
    """A cell whose job is in no list, and of which it is not known how it ended."""
    return replace(gone(cell, job), alive=True, doing=doing, why=why, cause="")


def queued(cell: CellState, job: Submitted, state: JobState) -> CellState:
    """A cell whose job waits or runs."""
    attempt, began_at, starts = cell.attempt, None, None
    runs = attempt is not None and attempt.job in (None, state.job) and not state.waits
    doing, why = STARTING, in_words(state)
    if not runs and is_of(cell, job) and _is_of_this_start(cell, state):
        doing, why = "", cell.why
    elif state.waits:
        last = replace(cell, doing=WAITING).last_epoch()
        again = f"goes on after epoch {last.epoch}; " if last else ""
        doing, why, starts = WAITING, again + (why or "Slurm gives no reason yet"), state.start
    elif runs and attempt is not None:
        doing, began_at = RUNNING, attempt.started_at
    elif state.state in ("COMPLETING", "STAGE_OUT"):
        doing = ENDING
    elif len(job.cells) > 1:
        doing, why = WAITING, "its job runs other cells first"
    elif (ran_s := seconds_of(state.elapsed)) is not None:
        began_at = datetime.now(UTC) - timedelta(seconds=ran_s)
    return replace(
        gone(cell, job), alive=True, doing=doing, why=why, cause="" if doing else cell.cause,
        slurm=state.state, nodes=state.nodes or None, expected_start=starts, began_at=began_at,
    )  # fmt: skip


def is_of(cell: CellState, job: Submitted) -> bool:
    """Whether the cell's record is of this job; not so that of a cell that is run by force, before
    it is put aside."""
    return cell.ended_at is not None and cell.ended_at >= job.at


def _is_of_this_start(cell: CellState, state: JobState) -> bool:
    """Whether the record is of the job's present start, not of one before it was requeued."""
    if cell.ended_at is None or state.start is None or state.waits:
        return False
    return cell.ended_at.astimezone().replace(tzinfo=None).isoformat() >= state.start
