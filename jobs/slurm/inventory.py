"""Where each cell of a sweep stands on Slurm: by its record, its job, and what Slurm says of jobs
that are gone. Cells whose job ended without a word get their record here."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from jobs.ledger import OTHERS, Standing, recorded
from jobs.lock import hold
from jobs.settle import begun_in, over, settle_lost, settle_unstarted
from jobs.slurm.history import Ending, History, status_of
from jobs.slurm.notes import CLOCKS_DIFFER, PREFLIGHT, RunNote
from jobs.slurm.preflight import FOLDER_NAME, PreflightReport, read_preflight
from jobs.slurm.queue import JobState
from jobs.slurm.submit import log_name
from jobs.submit import FOLDER_NAME as SUBMITIT
from train.config.run import RunConfig
from train.record.atomic import forget_absent
from train.record.run import GOOD, RECORD_NAME, RecordError, Status, read_record

#: How long a job must be gone before its cells are given records here: what its supervisor wrote
#: last may take a moment to be seen through a network file system.
SETTLE_S = 10.0
#: After a good end there is a record, seen or not, and where Slurm cannot say how the job ended
#: there may be one: network file systems keep names and attributes for up to a minute by default.
SETTLE_WELL_S = 120.0


@dataclass(frozen=True)
class Submitted:
    """The job that a cell was given to last."""

    job: str  # A_I or J
    log: Path  # of its supervisor
    at: datetime
    preflight: str | None = None  # the job that had to end well first


@dataclass(frozen=True)
class Place:
    """One cell: its record's word, and its job where that is still in the queue."""

    standing: Standing
    job: JobState | None  # in the queue: waits or runs
    submitted: Submitted | None
    settling: bool = False  # its job is gone, but what it left may not all be here yet

    @property
    def alive(self) -> bool:
        return self.job is not None or self.settling


def array_folder(sweep: Path, run: str, index: int) -> Path:
    """submitit's folder of one call of sbatch."""
    return sweep / SUBMITIT / f"{run}-{index}"


def submitted_cells(sweep: Path, notes: Iterable[RunNote]) -> dict[str, Submitted]:
    """Cell id -> its last job. ``notes``: oldest first."""
    found: dict[str, Submitted] = {}
    for note in notes:
        for index, array in enumerate(note.arrays):
            for job, cells in zip(array.elements(), array.units, strict=False):
                log = array_folder(sweep, note.run, index) / log_name(job)
                told = Submitted(job, log, note.submitted_at, note.preflight_job)
                found |= dict.fromkeys(cells, told)
    return found


def take(
    configs: Sequence[RunConfig],
    sweep: Path,
    submitted: Mapping[str, Submitted],
    queue: Mapping[str, JobState],
    history: History,
    over_s: Callable[[str], float] = lambda _job: math.inf,
) -> list[Place]:
    """Look at every cell once; asks Slurm only about jobs that are gone and left no record.

    ``over_s``: seconds since a job has been gone; its cells get their records here when it has been
    for long enough.

    Raises:
        SlurmError: no answer about a job that is gone.
        OSError: a cell's folder is missing or cannot be written.
    """
    alive = {job: state for job, state in queue.items() if not state.ended}
    open_ = {
        config.cell_id(): told
        for config in configs
        if (told := submitted.get(config.cell_id()))
        and told.job not in alive
        and is_open(sweep / config.cell_id(), told)
    }
    gone = {
        name: told
        for name, told in open_.items()
        if over_s(told.job) >= _patience_s(queue[told.job].state if told.job in queue else "")
    }
    asked = {told.job for told in gone.values()}
    firsts = {told.preflight for told in gone.values() if told.preflight}
    silent = {job for job in firsts if job not in alive and report_of(sweep, job) is None}
    endings = history.endings(asked | silent)
    held = {job: held_by(sweep, job, silent, endings) for job in firsts}
    places = []
    for config in configs:
        name, folder = config.cell_id(), sweep / config.cell_id()
        told = submitted.get(name)
        settling = name in open_
        last = gone.get(name)
        ending = endings.get(last.job) if last else None
        if last and over_s(last.job) >= _patience_s(ending.state if ending else None):
            why = held.get(last.preflight) if last.preflight else None
            settling = not conclude(config, folder, last, ending, why)
        job = alive.get(told.job) if told else None
        places.append(Place(recorded(config, folder), job, told, settling))
    return places


def _patience_s(state: str | None) -> float:
    """``state``: how a job ended, in Slurm's word; None: Slurm cannot say."""
    return SETTLE_WELL_S if state in (None, "COMPLETED") else SETTLE_S


def is_open(cell: Path, told: Submitted) -> bool:
    """Whether the last job has left this cell without a record of its own."""
    for folder in (cell, cell / "logs"):
        with suppress(OSError):
            # network file systems look again at a folder that is opened
            next(folder.iterdir(), None)
    if begun_in(cell) is not None:
        return True
    try:
        record = read_record(cell / RECORD_NAME)
    except RecordError:
        return not (cell / RECORD_NAME).exists()
    # nodes' clocks may be behind: a record that is hardly older is taken for this job's
    return record.ended_at < told.at - CLOCKS_DIFFER and record.status not in GOOD


def conclude(
    config: RunConfig,
    cell: Path,
    told: Submitted,
    ending: Ending | None,
    held: str | None = None,
) -> bool:
    """Give a cell whose job is gone its record, unless one is there.

    False while its supervisor still holds it, or a record is there that cannot be read yet.

    ``held``: what the preflight found that kept the job from beginning.
    """
    status, text = words(told.job, ending)
    if held is not None and begun_in(cell) is None:
        status, text = "cancelled", held
    with hold(cell) as ours:
        if not ours:
            return False
        forget_absent(cell)
        forget_absent(cell / "logs")
        found = recorded(config, cell)
        if found.done:
            over(cell)  # its supervisor was ended between the record and the last clean-up
        settled = found.done or found.status == OTHERS or settle_lost(cell, config, text, status)
        if not settled and is_open(cell, told):
            settle_unstarted(cell, config, told.log, told.at, text, status)
    return (cell / RECORD_NAME).exists()


def held_by(
    sweep: Path,
    preflight: str | None,
    silent: Collection[str] = (),
    endings: Mapping[str, Ending] | None = None,
) -> str | None:
    """Why the preflight held the job; None where it did not.

    ``silent``: preflight jobs that are gone and left no report; ``endings``: what Slurm says.
    """
    if preflight is None:
        return None
    report = report_of(sweep, preflight)
    if report is not None:
        found = None if report.ok else report.problems[0]
        return None if found is None else f"held by the preflight, job {preflight}: {found}"
    if preflight not in silent:
        return None
    _, text = words(preflight, (endings or {}).get(preflight))
    logs = sorted((sweep / SUBMITIT).glob(f"*-{PREFLIGHT}/{log_name(preflight)}"))
    read = f"; read {logs[-1]}" if logs else ""
    return f"held: the preflight ended without a report ({text}){read}"


def preflight_folder(sweep: Path, run: str) -> Path:
    """submitit's folder of a preflight job."""
    return sweep / SUBMITIT / f"{run}-{PREFLIGHT}"


def report_of(sweep: Path, preflight: str) -> PreflightReport | None:
    """What the preflight job with this id found; None where it left no report."""
    for folder in sorted((sweep / FOLDER_NAME).glob("*"), reverse=True):
        report = read_preflight(folder)
        if report is not None and report.job == preflight:
            return report
    return None


def words(job: str, ending: Ending | None) -> tuple[Status, str]:
    """Status and words for a job that is gone."""
    if ending is None:
        return "lost", f"Slurm no longer knows job {job}"
    status, text = status_of(ending)
    return status, f"job {job}: {text}"
