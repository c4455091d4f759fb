"""What each cell of a sweep does now: its record, the life signs in its folder, its job.

A record that is newer than the submission wins over what the queue said: it is written before the
job ends, and the queue may tell of the job for minutes after.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from jobs.cell.heartbeat import read_sign
from jobs.cell.missing_record import Begun, begun_in
from jobs.cell.state import NEW, RUNNING, Standing, recorded
from jobs.display import Row
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query
from jobs.slurm.reconcile import Place, take
from jobs.slurm.submissions import RunNote, Submitted, adopt, jobs_of, read_notes, submitted_cells
from train.config.plan import epochs_to_train
from train.config.run import RunConfig
from train.errors import Unreadable
from train.record.run import GOOD, RECORD_NAME, EpochRecord, RecordError, Status, read_record

#: What a cell does that has no record of its last start yet.
WAITING, STARTING, ENDING, NOT_SUBMITTED = "waiting", "starting", "ending", "not submitted"
#: Slurm gave no answer, and the files do not tell either.
UNKNOWN = "unknown"
GONE = (ENDING, "its job is gone; what it left is waited for")
_RECORDED = frozenset(get_args(Status))


@dataclass(frozen=True)
class Life:
    """What a cell's folder tells beside the status of its record."""

    begun: Begun | None  # a start that has not been settled
    last: EpochRecord | None
    phase: str  # of rank 0, as its last life sign says
    ended_at: datetime | None  # of the record


@dataclass(frozen=True)
class CellState:
    """One cell now. None: not known, or there is nothing to know yet."""

    cell: str
    ranks: int
    state: str  # a record's status, or one of the words above, or running
    why: str  # why it waits, or how it ended; one line
    job: str | None
    slurm: str | None  # the job's state in Slurm's word
    nodes: str | None
    expected_start: str | None  # of a job that waits, where Slurm says; the cluster's local time
    seconds: float | None  # since this start began
    epoch: int
    epochs: int | None  # of the whole run; None where it takes the data to know
    train_loss: float | None
    validation_accuracy: float | None
    images_per_s: float | None  # of the last epoch
    phase: str | None
    log: str | None  # of the supervisor of its last job
    cause: str = ""  # of a bad end: equal for cells whose ends differ only by names and numbers

    @property
    def active(self) -> bool:
        return self.state in (RUNNING, STARTING, ENDING)


def read_life(cell: Standing) -> Life:
    """Look into the cell's folder; changes nothing."""
    ended_at = begun = None
    if cell.status in _RECORDED:
        with contextlib.suppress(RecordError, Unreadable):
            ended_at = read_record(cell.folder / RECORD_NAME).ended_at
    with contextlib.suppress(Unreadable):  # as its standing says
        begun = begun_in(cell.folder)
    sign = read_sign(cell.folder, 0) if begun else None
    phase = "" if sign is None or sign.at is None else sign.phase
    return Life(begun, Row(cell, cell.status).last_epoch(), phase, ended_at)


def survey_slurm(
    cells: Sequence[tuple[Standing, Life]],
    submitted: Mapping[str, Submitted],
    notes: Iterable[RunNote],
    queue: Mapping[str, JobState] | None,
    *,
    settling: Mapping[str, tuple[str, str]] | None = None,
    now: datetime | None = None,
) -> list[CellState]:
    """The state of every cell; asks nobody. ``settling``: of which neither files nor queue tell.

    ``queue``: None where Slurm gave no answer. It has to be asked after the notes were read and
    before the cells' folders: so a job that is noted and not in it is over, and a record that a
    job left is seen.
    """
    mates = {job: len(units) for job, units in jobs_of(notes).items()}
    now = now or datetime.now(UTC)
    unsure = settling or {}
    return [
        _state(cell, life, submitted.get(cell.config.cell_id()), queue, mates, unsure, now)
        for cell, life in cells
    ]


def survey_places(places: Sequence[Place], notes: Iterable[RunNote]) -> list[CellState]:
    """The same from places that were just taken."""
    return survey_slurm(
        [(place.standing, read_life(place.standing)) for place in places],
        {p.standing.config.cell_id(): p.submitted for p in places if p.submitted},
        notes,
        {place.job.job: place.job for place in places if place.job},
        settling={
            place.standing.config.cell_id(): (UNKNOWN, place.elsewhere) if place.elsewhere else GONE
            for place in places
            if place.settling or place.elsewhere
        },
    )


def _state(
    cell: Standing,
    life: Life,
    told: Submitted | None,
    queue: Mapping[str, JobState] | None,
    mates: Mapping[str, int],
    settling: Mapping[str, tuple[str, str]],
    now: datetime,
) -> CellState:
    name = cell.config.cell_id()
    job = queue.get(told.job) if queue and told else None
    job = None if job is None or job.ended else job
    fresh = life.ended_at is not None and (told is None or life.ended_at >= told.at)
    if job is None:
        state, why = _without_job(cell, life, told, queue is not None, fresh)
    else:
        state, why = _with_job(cell, life, job, mates.get(job.job, 1), fresh)
    if name in settling:
        state, why = settling[name]
    runs = state in (RUNNING, STARTING)
    last = life.last if state not in (NOT_SUBMITTED, STARTING) else None
    return CellState(
        cell=name,
        ranks=cell.config.gpus,
        state=state,
        why=why,
        job=told.job if told else None,
        slurm=job.state if job else None,
        nodes=job.nodes or None if job else None,
        expected_start=job.start if job and state == WAITING and job.waits else None,
        seconds=_since(life, job, now) if runs else None,
        epoch=last.epoch if last else 0,
        epochs=epochs_to_train(cell.config),
        train_loss=last.train_loss if last else None,
        validation_accuracy=last.validation_accuracy if last else None,
        images_per_s=last.images / last.train_s if last and last.train_s > 0 else None,
        phase=life.phase or None if runs else None,
        log=str(told.log) if told else None,
        cause=cell.cause if state == cell.status else "",
    )


def _without_job(
    cell: Standing, life: Life, told: Submitted | None, answered: bool, fresh: bool
) -> tuple[str, str]:
    """State and why of a cell that has no job in the queue, as far as we know."""
    if life.begun and not (told and answered):
        return RUNNING, "as its files say"
    if life.begun:
        return ENDING, "its job is gone and left no record"
    if told and not answered and not fresh:
        return UNKNOWN, "it was submitted"
    if cell.status == NEW:
        return NOT_SUBMITTED, "its job is gone: make sweep submits it again" if told else ""
    return _recorded(cell)


def _with_job(
    cell: Standing, life: Life, job: JobState, mates: int, fresh: bool
) -> tuple[str, str]:
    """State and why of a cell whose job waits or runs. ``mates``: cells that the job is to run."""
    runs = life.begun is not None and life.begun.job in (None, job.job) and not job.waits
    over = cell.status in GOOD or (not runs and _in_this_start(life, job))
    if fresh and over:
        return _recorded(cell)
    if job.waits:
        return WAITING, _waits(job, life, fresh)
    if runs:
        return RUNNING, in_words(job)
    if job.state in ("COMPLETING", "STAGE_OUT"):
        return ENDING, in_words(job)
    if mates > 1:
        return WAITING, "its job runs other cells first"
    return STARTING, in_words(job)


def _recorded(cell: Standing) -> tuple[str, str]:
    return cell.status, "" if cell.status == "completed" else cell.why


def _waits(job: JobState, life: Life, fresh: bool) -> str:
    again = f"goes on after epoch {life.last.epoch}; " if fresh and life.last else ""
    return again + (in_words(job) or "Slurm gives no reason yet")


def _in_this_start(life: Life, job: JobState) -> bool:
    """Whether the record is of the job's present start, not of one before it was requeued."""
    if life.ended_at is None or job.start is None or job.waits:
        return False
    return life.ended_at.astimezone().replace(tzinfo=None).isoformat() >= job.start


def _since(life: Life, job: JobState | None, now: datetime) -> float | None:
    if life.begun:
        return max(0.0, (now - life.begun.started_at).total_seconds())
    return seconds_of(job.elapsed) if job else None


def seconds_of(elapsed: str) -> float | None:
    """Slurm's D-HH:MM:SS, HH:MM:SS or MM:SS; None where it says something else."""
    found = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", elapsed)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def counts(states: Iterable[CellState]) -> Counter[str]:
    return Counter(state.state for state in states)


def as_json(
    sweep: str, states: Sequence[CellState], asked_at: datetime, trouble: str | None
) -> dict[str, Any]:
    """For programs. ``trouble``: why Slurm gave no answer; then only files were looked at."""
    return {
        "schema_version": 1,
        "sweep": sweep,
        "asked_at": asked_at.isoformat(),
        "slurm_answered": trouble is None,
        "trouble": trouble,
        "counts": dict(counts(states)),
        "cells": [asdict(state) for state in states],
    }


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
