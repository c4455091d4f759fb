"""Where each cell of a sweep stands on Slurm: by its record, its job, and what Slurm says of jobs
that are gone. Cells whose job ended without a record get one here.

Absence proves nothing: a list that lacks a job, a file that is not seen, a program that does not
answer. A job is lost only when Slurm, asked by its id on the cluster where it was submitted, says
that it ended, or no longer knows it and its files are ten minutes old.
"""

from __future__ import annotations

import math
import os
import pwd
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.cell import missing_record
from jobs.cell.lock import hold
from jobs.cell.state import ENDING, NEW, OTHERS, UNKNOWN, UNREADABLE, CellState, recorded
from jobs.slurm.client.sacct import Ending, History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import (
    ANY,
    CLOCKS_DIFFER,
    PREFLIGHT,
    RunNote,
    Submitted,
    array_folder,
    is_anothers,
    log_name,
)
from jobs.slurm.watch.endings import over_for_s, words
from jobs.slurm.watch.states import by_files, gone, is_of, queued, undecided
from train.config.run import RunConfig
from train.errors import Unreadable
from train.record.atomic import forget_absent
from train.record.run import Status

#: How long a job must be gone before its cells are given records here: what its supervisor wrote
#: last may take a moment to be seen through a network file system.
SETTLE_S = 10.0
#: After a good end there is a record, seen or not: network file systems keep names and attributes
#: for up to a minute by default.
SETTLE_WELL_S = 120.0
#: Files of a job that Slurm no longer knows must be this old; a running job writes all the time.
FORGOTTEN_S = 600.0
#: Where the accounts take a job for alive that the controller does not know, they may be late; a
#: job that never gets its end there ("runaway") is not believed for ever.
RUNAWAY_S = 24 * 3600.0

#: What the preflight job with this id found wrong; '' where it passed, None where it left no
#: report.
PreflightProblem = Callable[[str], str | None]


def reconcile(
    configs: Sequence[RunConfig],
    sweep: Path,
    submitted: Mapping[str, Submitted],
    queue: Mapping[str, JobState],
    history: History,
    preflight_problem: PreflightProblem = lambda _job: None,
) -> list[CellState]:
    """Look at every cell once; ask Slurm by id about jobs that left no record and are not in
    ``queue``, or ended there.

    The queue has to be asked after the notes were read and before the cells' folders: so a job that
    is noted and not in it is over, and a record that a job left is seen.

    Raises:
        SlurmError: no answer about a job that is gone.
        OSError: a cell's folder cannot be written.
    """
    cells: list[tuple[CellState, Submitted | None]] = []
    unsettled: set[Submitted] = set()
    for config in configs:
        folder = sweep / config.cell_id()
        job = submitted.get(folder.name)
        if job is not None and not _is_alive(job, queue):
            _look_again(folder)
        cell = recorded(config, folder)
        if job is not None and not _is_alive(job, queue):
            job = _acting(cell, job)
            if not _is_alive(job, queue) and _left_no_record(cell, job):
                unsettled.add(job)
        cells.append((cell, job))
    ends = _ends(unsettled, sweep, queue, history, preflight_problem)
    return [
        by_files(cell) if job is None else _by_job(cell, job, _listed(job, queue), ends.get(job))
        for cell, job in cells
    ]


def _listed(job: Submitted, queue: Mapping[str, JobState]) -> JobState | None:
    """The job in the queue; not another one with the same id."""
    state = queue.get(job.job)
    return None if state is None or is_anothers(state, job.run, job.part) else state


def _is_alive(job: Submitted, queue: Mapping[str, JobState]) -> bool:
    state = _listed(job, queue)
    return state is not None and not state.ended


def _look_again(cell: Path) -> None:
    """Network file systems look again for what is in a folder that is opened."""
    for folder in (cell, cell / "logs"):
        with suppress(OSError):
            next(folder.iterdir(), None)


def _acting(cell: CellState, last: Submitted) -> Submitted:
    """The job that runs the cell: an earlier one, where the last one found that still at work."""
    if cell.attempt is None or cell.attempt.job in (None, last.job):
        return last
    return replace(last, job=str(cell.attempt.job), run=ANY, part=ANY, cells=(cell.name,))


def _left_no_record(cell: CellState, job: Submitted) -> bool:
    """Whether the job has left this cell without a record of its own, as far as its files can be
    read."""
    if cell.attempt is not None or cell.status == NEW:
        return True
    if cell.ended_at is None or cell.done:
        return False
    # nodes' clocks may be behind: a record that is hardly older is taken for this job's
    return cell.ended_at < job.at - CLOCKS_DIFFER


@dataclass(frozen=True)
class _End:
    """What is known of a job that left cells without a record."""

    ending: Ending | None = None  # None: Slurm does not know the job
    settle: bool = False  # it is over, and has been for long enough
    status: Status = "lost"
    why: str = ""
    preflight: str = ""  # why its preflight kept it from beginning
    elsewhere: str = ""  # why Slurm, as it is asked here, cannot know


def _ends(
    jobs: Collection[Submitted],
    sweep: Path,
    queue: Mapping[str, JobState],
    history: History,
    preflight_problem: PreflightProblem,
) -> dict[Submitted, _End]:
    listed = {job: _listed(job, queue) for job in jobs}
    away = {job: why for job in jobs if not listed[job] and (why := elsewhere(job, history))}
    unlisted = {job for job in jobs if not listed[job] and job not in away}
    ended = {
        job
        for job, state in listed.items()
        if state and over_for_s(state) >= _patience_s(Ending.of_queued(state))
    }
    preflight_jobs = {job.preflight for job in unlisted | ended if job.preflight}
    problems = {job: preflight_problem(job) for job in preflight_jobs}
    unreported = {
        job
        for job in preflight_jobs
        if problems[job] is None and (job not in queue or queue[job].ended)
    }
    endings = history.endings(
        {job.job for job in ended} | (unreported & queue.keys()),
        {job.job for job in unlisted} | (unreported - queue.keys()),
    )
    for name in unreported:
        logs = sorted(sweep.glob(str(array_folder(Path(), "*", PREFLIGHT) / log_name(name))))
        read = f"; read {logs[-1]}" if logs else ""
        problems[name] = f"it left no report ({words(name, endings.get(name))[1]}){read}"
    ends = {job: _End(elsewhere=why) for job, why in away.items()}
    for job in jobs - ends.keys():
        ending, state = endings.get(job.job), listed[job]
        if ending is not None and is_anothers(ending, job.run, job.part):
            ending = None
        if state is not None:
            ending = ending or Ending.of_queued(state)
        quiet_s = over_for_s(state) if state else _quiet_s(sweep, job)
        status, why = words(job.job, ending)
        problem = problems.get(job.preflight or "")
        held = f"not started, since the preflight, job {job.preflight}, failed: {problem}"
        ends[job] = _End(
            ending, quiet_s >= _patience_s(ending), status, why, held if problem else ""
        )
    return ends


def _patience_s(ending: Ending | None) -> float:
    """How long after its last sign a job counts as over, by what Slurm says of it."""
    if ending is None:
        return FORGOTTEN_S
    if not ending.over:  # what the controller knows to be alive is never over
        return RUNAWAY_S if ending.source == "sacct" else math.inf
    return SETTLE_WELL_S if ending.state == "COMPLETED" else SETTLE_S


def _by_job(cell: CellState, job: Submitted, state: JobState | None, end: _End | None) -> CellState:
    """``end``: of a job that left the cell without a record."""
    if end is None:
        # a controller that was restarted may learn late that a cell is done
        ended = state is None or state.ended or (cell.done and is_of(cell, job))
        return gone(cell, job) if ended or state is None else queued(cell, job, state)
    if end.elsewhere:
        return replace(undecided(cell, job, UNKNOWN, end.elsewhere), elsewhere=end.elsewhere)
    if end.settle:
        try:
            if settled := _settle(cell, job, end):
                return gone(settled, job)
        except Unreadable as error:
            return gone(CellState(cell.config, cell.folder, UNREADABLE, str(error)), job)
    if end.ending is not None and not end.ending.over:
        return queued(cell, job, end.ending.as_queued())
    return undecided(cell, job, ENDING, "its job is gone; waiting for what it left to be seen")


def _settle(cell: CellState, job: Submitted, end: _End) -> CellState | None:
    """The cell with a record of its job, given here unless there is one; None while its supervisor
    still holds it, or a record is there that is not seen yet.

    Raises:
        Unreadable: a file that decides cannot be read now; nothing was changed.
    """
    config, folder = cell.config, cell.folder
    folder.mkdir(parents=True, exist_ok=True)
    with hold(folder) as ours:
        if not ours:
            return None
        forget_absent(folder)
        forget_absent(folder / "logs")
        now = recorded(config, folder)
        status, why = end.status, end.why
        if end.preflight and now.attempt is None:
            status, why = "cancelled", end.preflight
        if now.status in (UNREADABLE, OTHERS):
            return now
        if now.done:  # its supervisor was ended between the record and the last clean-up
            missing_record.over(folder)
        elif not missing_record.settle_lost(folder, config, why, status) and _left_no_record(
            now, job
        ):
            missing_record.settle_unstarted(folder, config, job.log, job.at, why, status)
    now = recorded(config, folder)
    return None if now.status == NEW else now


def elsewhere(submission: Submitted | RunNote, history: History) -> str:
    """Why Slurm, as it is asked here, cannot know what was submitted; '' where it can.

    Raises:
        SlurmError: no answer.
    """
    what = f"the submission {submission.run}"
    if isinstance(submission, Submitted):
        what = f"job {submission.job}"
    if submission.user not in (None, os.getuid()):
        try:
            user = pwd.getpwuid(submission.user or 0).pw_name
        except KeyError:
            user = str(submission.user)
        return f"{what} is user {user}'s, of whose jobs others may see nothing"
    cluster = submission.cluster
    if cluster is not None and (here := history.cluster()) not in (None, cluster):
        return (
            f"{what} is on cluster {cluster}, and this shell asks cluster {here}: ask again "
            "where that cluster's commands are loaded"
        )
    return ""


def _quiet_s(sweep: Path, job: Submitted) -> float:
    """Seconds since a job that is in no list gave a last sign: its cells' files, its log, its
    submission. The clock is the file server's, as are the files' times.

    Raises:
        OSError: a folder that is there cannot be listed: what is in it may be of now.
    """
    times = [job.at.timestamp()]
    for cell in job.cells:
        for folder in (sweep / cell, sweep / cell / "logs"):
            try:
                # a lock file, too, is touched by whoever looks
                times += [f.stat().st_mtime for f in folder.iterdir() if not f.name.startswith(".")]
            except FileNotFoundError:
                continue
    with suppress(OSError):
        times.append(job.log.stat().st_mtime)
    with suppress(OSError), tempfile.TemporaryFile(dir=sweep) as probe:
        return os.fstat(probe.fileno()).st_mtime - max(times)
    return time.time() - max(times)
