"""Where each cell of a sweep stands on Slurm: by its record, its job, and what Slurm says of jobs
that are gone. Cells whose job ended without a word get their record here.

Absence proves nothing: a list that lacks a job, a file that is not seen, a program that does not
answer. A job is lost only when Slurm, asked by its id on the cluster where it was submitted, says
that it ended, or no longer knows it and its files are ten minutes old.
"""

from __future__ import annotations

import math
import os
import pwd
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.cell.lock import hold
from jobs.cell.missing_record import begun_in, over, settle_lost, settle_unstarted
from jobs.cell.state import OTHERS, UNREADABLE, Standing, recorded
from jobs.messages import NoAnswer
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import PREFLIGHT, report_of
from jobs.slurm.script import NO_TASKS
from jobs.slurm.submissions import (
    ANY,
    CLOCKS_DIFFER,
    SBATCH_S,
    SCRIPT_NAME,
    SUBMITIT,
    RunNote,
    Submitted,
    array_folder,
    is_anothers,
    is_of_run,
    log_name,
)
from train.config.run import RunConfig
from train.errors import Unreadable, read_whole
from train.record.atomic import forget_absent
from train.record.run import GOOD, RECORD_NAME, NoRecord, RecordError, Status, read_record

#: How long a job must be gone before its cells are given records here: what its supervisor wrote
#: last may take a moment to be seen through a network file system.
SETTLE_S = 10.0
#: After a good end there is a record, seen or not: network file systems keep names and attributes
#: for up to a minute by default.
SETTLE_WELL_S = 120.0
#: Files of a job that Slurm no longer knows must be this old; a running job writes every second.
FORGOTTEN_S = 600.0
#: Where the accounts take a job for alive that the controller does not know, they may be late; a
#: job that never gets its end there ("runaway") is not believed for ever.
RUNAWAY_S = 24 * 3600.0


@dataclass(frozen=True)
class Place:
    """One cell: its record's word, and its job where that is still in the queue."""

    standing: Standing
    job: JobState | None  # in the queue: waits or runs
    submitted: Submitted | None
    settling: bool = False  # its job is gone, but what it left may not all be here yet
    elsewhere: str = ""  # why its job cannot be asked about from here

    @property
    def alive(self) -> bool:
        return self.job is not None or self.settling or bool(self.elsewhere)


def take(
    configs: Sequence[RunConfig],
    sweep: Path,
    submitted: Mapping[str, Submitted],
    queue: Mapping[str, JobState],
    history: History,
    over_s: Callable[[str], float] = lambda _job: math.inf,
) -> list[Place]:
    """Look at every cell once; asks Slurm by id about jobs that left no record and are not in
    ``queue``, or ended there.

    ``over_s``: seconds since a job of the queue ended; its cells get their records here when that
    is long enough.

    Raises:
        SlurmError: no answer about a job that is gone.
        OSError: a cell's folder is missing or cannot be written.
    """
    acting = {
        name: _acting(sweep, name, told, queue)
        for config in configs
        if (told := submitted.get(name := config.cell_id()))
    }
    listed = {
        told.job: state
        for told in acting.values()
        if (state := queue.get(told.job)) and not is_anothers(state, told.run, told.part)
    }
    open_ = {
        config.cell_id(): told
        for config in configs
        if (told := acting.get(config.cell_id()))
        and (told.job not in listed or listed[told.job].ended)
        and is_open(sweep / config.cell_id(), told)
    }
    away = {
        name: why
        for name, told in open_.items()
        if told.job not in listed and (why := elsewhere(told, history))
    }
    asked = {name: told for name, told in open_.items() if name not in away}
    gone = {told.job for told in asked.values() if told.job not in listed}
    over = {
        told.job
        for told in asked.values()
        if told.job in listed and over_s(told.job) >= _patience_s(listed[told.job])
    }
    firsts = {told.preflight for told in asked.values()
              if told.preflight and told.job in gone | over}  # fmt: skip
    silent = {
        job for job in firsts
        if report_of(sweep, job) is None and (job not in queue or queue[job].ended)
    }  # fmt: skip
    endings = history.endings(over | (silent & set(queue)), gone | (silent - set(queue)))
    for told in asked.values():
        if told.job in endings and is_anothers(endings[told.job], told.run, told.part):
            del endings[told.job]
    held = {job: held_by(sweep, job, silent, endings) for job in firsts}
    places = []
    for config in configs:
        name, folder = config.cell_id(), sweep / config.cell_id()
        told = acting.get(name)
        job = listed.get(told.job) if told else None
        job = None if job is None or job.ended else job
        settling = False
        if told and name in asked:
            ending = endings.get(told.job)
            if told.job in listed:
                ending = ending or listed[told.job]
                age_s = over_s(told.job)
            else:
                age_s = quiet_s(sweep, told)
            due = age_s >= _patience_s(ending)
            held_why = held.get(told.preflight) if told.preflight else None
            try:
                settled = due and conclude(config, folder, told, ending, held_why)
            except Unreadable as error:
                places.append(Place(Standing(config, folder, UNREADABLE, str(error)), None, told))
                continue
            if not settled:
                job = ending if ending and not ending.ended else None
                settling = job is None
        standing = recorded(config, folder)
        if told and job and standing.done and _is_of_this_job(folder, told):
            job = None  # its work is done; a controller that was restarted may learn it late
        places.append(Place(standing, job, told, settling, away.get(name, "")))
    return places


def _acting(sweep: Path, cell: str, told: Submitted, queue: Mapping[str, JobState]) -> Submitted:
    """The job that runs the cell: an earlier one, where the last one found that still at work."""
    if told.job in queue and not queue[told.job].ended:
        return told
    with suppress(OSError):
        begun = begun_in(sweep / cell)
        if begun is not None and begun.job is not None and begun.job != told.job:
            return replace(told, job=begun.job, run=ANY, part=ANY, cells=(cell,))
    return told


def _is_of_this_job(cell: Path, told: Submitted) -> bool:
    """Not so the record of a cell that is run by force, before it is put aside."""
    with suppress(RecordError, OSError):
        return read_record(cell / RECORD_NAME).ended_at >= told.at
    return False


def _patience_s(ending: JobState | None) -> float:
    """How long after its last sign a job counts as over, by what Slurm says of it."""
    if ending is None:
        return FORGOTTEN_S
    if not ending.ended:  # what the controller knows to be alive is never over
        return RUNAWAY_S if ending.source == "sacct" else math.inf
    return SETTLE_WELL_S if ending.state == "COMPLETED" else SETTLE_S


def is_open(cell: Path, told: Submitted) -> bool:
    """Whether the last job has left this cell without a record of its own, as far as its files can
    be read."""
    for folder in (cell, cell / "logs"):
        with suppress(OSError):
            # network file systems look again at a folder that is opened
            next(folder.iterdir(), None)
    try:
        if begun_in(cell) is not None:
            return True
        record = read_record(cell / RECORD_NAME)
    except NoRecord:
        return True
    except (RecordError, Unreadable):
        return False
    # nodes' clocks may be behind: a record that is hardly older is taken for this job's
    return record.ended_at < told.at - CLOCKS_DIFFER and record.status not in GOOD


def conclude(
    config: RunConfig,
    cell: Path,
    told: Submitted,
    ending: JobState | None,
    held: str | None = None,
) -> bool:
    """Give a cell whose job is gone its record, unless one is there.

    False while its supervisor still holds it, or a record is there that is not seen yet. One whose
    files cannot be read is left alone.

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
        if found.status == UNREADABLE:
            return True
        if found.done:
            over(cell)  # its supervisor was ended between the record and the last clean-up
        settled = found.done or found.status == OTHERS or settle_lost(cell, config, text, status)
        if not settled and is_open(cell, told):
            settle_unstarted(cell, config, told.log, told.at, text, status)
    return read_whole(cell / RECORD_NAME) is not None


def held_by(
    sweep: Path,
    preflight: str | None,
    silent: Collection[str] = (),
    endings: Mapping[str, JobState] | None = None,
) -> str | None:
    """Why the preflight held the job; None where it did not.

    ``silent``: preflight jobs that are gone and left no report; ``endings``: what Slurm says.
    """
    if preflight is None:
        return None
    report = report_of(sweep, preflight)
    if report is not None:
        found = None if report.ok else report.problems[0]
        return (
            None
            if found is None
            else f"not started, since the preflight, job {preflight}, failed: {found}"
        )
    if preflight not in silent:
        return None
    _, text = words(preflight, (endings or {}).get(preflight))
    logs = sorted(sweep.parent.glob(f"*/{SUBMITIT}/*-{PREFLIGHT}/{log_name(preflight)}"))
    read = f"; read {logs[-1]}" if logs else ""
    return f"not started: the preflight ended without a report ({text}){read}"


def words(job: str, ending: JobState | None) -> tuple[Status, str]:
    """Status and words for a job that is gone."""
    if ending is None or not ending.ended:
        return "lost", f"Slurm no longer knows job {job}"
    status, text = status_of(ending)
    return status, f"job {job}: {text}"


def end_of(job: str, slurm_conf: str | None) -> str:
    """How a single job ended, in words."""
    try:
        return words(job, History(slurm_conf).endings([job]).get(job))[1]
    except SlurmError as error:
        return f"job {job}; Slurm gives no answer: {error}"


#: sbatch itself tries for two minutes; what it was to submit is in the queue by then, or nowhere.
UNCLEAR_S = 2 * SBATCH_S


def elsewhere(told: Submitted | RunNote, history: History) -> str:
    """Why Slurm, as it is asked here, cannot know what was submitted; '' where it can.

    Raises:
        SlurmError: no answer.
    """
    what = f"job {told.job}" if isinstance(told, Submitted) else f"the submission {told.run}"
    if told.user not in (None, os.getuid()):
        return f"{what} is user {_name(told.user)}'s, of whose jobs others may see nothing"
    if told.cluster is not None and (here := history.cluster()) not in (None, told.cluster):
        return (
            f"{what} is on cluster {told.cluster}, and this shell asks cluster {here}: ask again "
            "where that cluster's commands are loaded"
        )
    return ""


def _name(user: int | None) -> str:
    try:
        return pwd.getpwuid(user or 0).pw_name
    except KeyError:
        return str(user)


def quiet_s(sweep: Path, told: Submitted) -> float:
    """Seconds since a job that is in no list gave a last sign: its cells' files, its log, its
    submission. The clock is the file server's, as are the files' times.

    Raises:
        OSError: a folder that is there cannot be listed: what is in it may be of now.
    """
    times = [told.at.timestamp()]
    for cell in told.cells:
        for folder in (sweep / cell, sweep / cell / "logs"):
            try:
                # a lock file, too, is touched by whoever looks
                times += [f.stat().st_mtime for f in folder.iterdir() if not f.name.startswith(".")]
            except FileNotFoundError:
                continue
    with suppress(OSError):
        times.append(told.log.stat().st_mtime)
    with suppress(OSError), tempfile.TemporaryFile(dir=sweep) as probe:
        return os.fstat(probe.fileno()).st_mtime - max(times)
    return time.time() - max(times)


def refuse_unreadable(broken: Mapping[str, str], queue: Mapping[str, JobState]) -> None:
    """Cells of a note that cannot be read may be in the queue: they would run twice.

    Raises:
        NoAnswer: so it is.
    """
    for run, text in broken.items():
        jobs = {job.array for job in queue.values() if not job.ended and is_of_run(job, run)}
        if jobs:
            raise NoAnswer(
                f"{text}. Jobs {', '.join(sorted(jobs))} of that run are in the queue, so nothing "
                "is submitted: their cells might run twice. Wait for their end, or make cancel"
            )


@dataclass(frozen=True)
class Unclear:
    """A submission of which it is not known whether Slurm accepted it."""

    run: str
    part: str
    cells: list[Standing]
    until: float  # monotonic: by then it is in the queue, or nowhere


def unclear_in(sweep: Path, notes: Iterable[RunNote], cells: Sequence[Standing]) -> list[Unclear]:
    """Those of earlier runs: sbatch was called a moment ago, and no job's id was noted."""
    found = []
    by_id = {cell.config.cell_id(): cell for cell in cells}
    for note in notes:
        for index, array in enumerate(note.arrays if note.kind == "cells" else ()):
            script = array_folder(sweep, note.run, note.part(index)) / SCRIPT_NAME
            if array.job_id is None and script.exists():
                left_s = UNCLEAR_S - (time.time() - script.stat().st_mtime)
                mine = [by_id[name] for unit in array.units for name in unit if name in by_id]
                if left_s > 0 and mine:
                    until = time.monotonic() + left_s
                    found.append(Unclear(note.run, note.part(index), mine, until))
    return found


def status_of(ending: JobState) -> tuple[Status, str]:
    """The status of a record for a start that left none, and a sentence about its end.

    For jobs whose supervisor could not say it itself, so that a good end is none here.
    """
    status, text = _told(ending)
    return status, text + (f" (on {ending.nodes})" if ending.nodes else "")


#: slurmstepd's "signal" for a job whose output files cannot be made.
NO_LOG = 53
#: Exit codes of the batch script before the supervisor has begun.
_SCRIPT_ENDS = {
    127: "its batch script found no Python on the node (exit code 127): the environment of "
    "this checkout must be at the same path on all nodes; PYTHON= names one that is",
    126: "its batch script may not run the Python of this checkout on the node (exit code 126): "
    "the folders on its way must be open to you there",
    NO_TASKS: "the node does not see the results folder: name one on a file system that all nodes "
    "share with RESULTS=DIR",
}
_ENDS: dict[str, tuple[Status, str]] = {
    "CANCELLED": ("cancelled", "it was cancelled, by scancel or by the site"),
    "TIMEOUT": ("timeout", "Slurm ended it at its time limit"),
    "DEADLINE": ("timeout", "Slurm ended it at its deadline"),
    "PREEMPTED": ("preempted", "Slurm ended it for a job of higher priority"),
    "NODE_FAIL": ("lost", "a node that it ran on failed"),
    "BOOT_FAIL": ("lost", "a node that it was to run on did not come up"),
    "COMPLETED": ("lost", "Slurm says that it completed, yet it left no record"),
}


def _told(ending: JobState) -> tuple[Status, str]:
    if ending.state == "OUT_OF_MEMORY":
        return "failed", "it used more memory than it had asked for, and was ended"
    if ending.state in _ENDS:
        return _ENDS[ending.state]
    if ending.state == "FAILED":
        return _failed(ending)
    return "lost", f"Slurm says {ending.state}{_because(ending)}"


def _failed(ending: JobState) -> tuple[Status, str]:
    if ending.signal == NO_LOG:
        return "failed", (
            "Slurm could not open the job's log on the node (ExitCode 0:53), so nothing was "
            "started: the node does not see the results folder, or may not write there. Name a "
            "folder on a file system that all nodes share with RESULTS=DIR"
        )
    if ending.signal:
        return "lost", f"its supervisor was ended by {_signal_name(ending.signal)}"
    if ending.code in _SCRIPT_ENDS:
        return "failed", _SCRIPT_ENDS[ending.code]
    if ending.code is not None:
        return "failed", f"its batch script ended with exit code {ending.code}{_because(ending)}"
    return "lost", f"Slurm says {ending.state}{_because(ending)}"


def _because(ending: JobState) -> str:
    told = ending.reason not in ("", "NonZeroExitCode")
    return f" ({ending.reason})" if told else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
