"""One look at a sweep on a cluster, for `make status`: notes, then the queue, then the folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from jobs.ledger import recorded
from jobs.slurm.commands import SlurmError
from jobs.slurm.history import History
from jobs.slurm.inventory import submitted_cells, take
from jobs.slurm.notes import adopt, read_notes
from jobs.slurm.queue import JobState, query
from jobs.slurm.status import CellState, read_life, seconds_of, survey_places, survey_slurm
from train.config import RunConfig

#: What a supervisor wrote last may take this long to be seen through a network file system.
SEEN_AFTER_S = 10.0


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
    job_name: str,
    history: History,
    *,
    patience_s: float = 0,
) -> Look:
    """Where all cells stand; those whose job is gone without a word get their record.

    The notes are read before the queue is asked: so a job that is noted and not in the queue is
    over, also while another shell submits more.

    Raises:
        OSError: a record that is due cannot be written.
    """
    notes, remarks = read_notes(sweep)
    asked_at = datetime.now(UTC)
    try:
        queue = query(job_name, history.slurm_conf, patience_s=patience_s)
        for index, note in enumerate(notes):
            notes[index], unclear = adopt(note, queue, notes)
            remarks += unclear
        submitted = submitted_cells(sweep, notes)
        places = take(configs, sweep, submitted, queue, history, _ripe(queue))
    except SlurmError as error:
        cells = [recorded(config, sweep / config.cell_id()) for config in configs]
        known = [(cell, read_life(cell)) for cell in cells]
        states = survey_slurm(known, submitted_cells(sweep, notes), notes, None)
        return Look(states, asked_at, _no_answer(error, asked_at), tuple(remarks))
    return Look(survey_places(places, notes), asked_at, None, tuple(remarks))


def _ripe(queue: Mapping[str, JobState]) -> Callable[[str], bool]:
    """Whether a job ended so long ago that its cells may be given records here."""

    def ripe(job: str) -> bool:
        state = queue.get(job)
        # squeue writes local times
        return state is None or over_for_s(state, datetime.now()) >= SEEN_AFTER_S

    return ripe


def over_for_s(job: JobState, now: datetime) -> float:
    """Seconds since an ended job's end; ``now`` without a zone, as Slurm's times are.

    Infinite where Slurm does not tell.
    """
    ran_s = seconds_of(job.elapsed)
    if job.start is None or ran_s is None:
        return float("inf")
    try:
        began = datetime.fromisoformat(job.start)
    except ValueError:
        return float("inf")
    return (now - began - timedelta(seconds=ran_s)).total_seconds()


def _no_answer(error: SlurmError, at: datetime) -> str:
    when = at.astimezone()
    return f"Slurm gave no answer at {when:%H:%M:%S} ({error}): this is what the files say"
