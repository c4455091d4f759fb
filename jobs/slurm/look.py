"""One look at a sweep on a cluster, for `make status`: notes, then the queue, then the folders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jobs.ledger import recorded
from jobs.slurm.commands import SlurmError
from jobs.slurm.history import History
from jobs.slurm.inventory import take
from jobs.slurm.notes import adopt, read_notes, submitted_cells
from jobs.slurm.queue import JobState, query
from jobs.slurm.status import CellState, read_life, seconds_of, survey_places, survey_slurm
from train.config.run import RunConfig

MOST_REMARKS = 3


@dataclass(frozen=True)
class Look:
    """A sweep at one moment."""

    states: list[CellState]
    asked_at: datetime
    trouble: str | None  # why Slurm gave no answer: then the states are what the files say
    remarks: tuple[str, ...] = ()  # notes that cannot be read, jobs that nobody knows


def look(
    configs: Sequence[RunConfig],
    sweep: Path,
    history: History,
    *,
    patience_s: float = 0,
) -> Look:
    """Where all cells stand; those whose job is over and left no record get one.

    The notes are read before the queue is asked: what another shell submits then is in neither.

    Raises:
        OSError: a record that is due cannot be written.
    """
    notes, broken = read_notes(sweep)
    remarks = [*broken.values()]
    asked_at = datetime.now(UTC)
    try:
        queue = query(history.slurm_conf, patience_s=patience_s)
        notes = [adopt(note, queue) for note in notes]
        submitted = submitted_cells(sweep, notes)
        places = take(
            configs, sweep, submitted, queue, history, lambda job: over_for_s(queue.get(job))
        )
    except SlurmError as error:
        cells = [recorded(config, sweep / config.cell_id()) for config in configs]
        known = [(cell, read_life(cell)) for cell in cells]
        states = survey_slurm(known, submitted_cells(sweep, notes), notes, None)
        return Look(states, asked_at, _no_answer(error, asked_at), tuple(remarks))
    remarks += sorted({place.elsewhere for place in places if place.elsewhere})[:MOST_REMARKS]
    return Look(survey_places(places, notes), asked_at, None, tuple(remarks))


def over_for_s(job: JobState | None, now: datetime | None = None) -> float:
    """Seconds since an ended job's end. ``now``: without a zone, as Slurm's times are.

    Infinite where squeue forgot the job (after MinJobAge, often 300 s), and where it never began.
    """
    ran_s = None if job is None else seconds_of(job.elapsed)
    if job is None or job.start is None or ran_s is None:
        return math.inf
    try:
        began = datetime.fromisoformat(job.start)
    except ValueError:
        return math.inf
    return ((now or datetime.now()) - began - timedelta(seconds=ran_s)).total_seconds()


def _no_answer(error: SlurmError, at: datetime) -> str:
    when = at.astimezone()
    return f"Slurm gave no answer at {when:%H:%M:%S} ({error}): this is what the files say"
