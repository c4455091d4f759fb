"""How jobs end, by what Slurm says of them: a single one is waited for, others are gone."""

from __future__ import annotations

import json
import math
import os
import pwd
import re
import shlex
import signal
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

from jobs.config.site import Site
from jobs.messages import say, seconds_of
from jobs.slurm.client.nodes import exclude_hint
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query
from jobs.slurm.job.task import PREFLIGHT, PreflightTask, minutes_for, report_of
from jobs.slurm.script import NO_TASKS, SETUP_FAILED, SETUP_MARK, TASKS_NAME
from jobs.slurm.submissions import SUBMITIT, RunNote, Submitted, listed_as, log_name, note_file
from train.record.cause import MOST_CHARACTERS
from train.record.cell_folder import tail_of
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

#: Seconds between two looks, in the first minute and later. A look is one question to Slurm for all
#: jobs of the user, and a cluster has many users.
FIRST_S, LATER_S = 5.0, 60.0
FIRST_FOR_S = 60.0


@dataclass(frozen=True)
class End:
    """What is known of a job that left cells without a record."""

    ending: JobState | None = None  # None: Slurm does not know the job
    settle: bool = False  # it is over, and has been for long enough
    status: Status = "lost"
    why: str = ""
    preflight: str = ""  # why its preflight kept it from beginning
    unseen: OSError | None = None  # why its last sign cannot be seen


def ends_of(
    jobs: set[Submitted],
    sweep: Path,
    queue: Mapping[str, JobState],
    history: History,
) -> dict[Submitted, End]:
    """Ask Slurm by id about jobs that its list lacks, about those that ended there long enough ago,
    and about preflights of either that left no report.

    Raises:
        SlurmError: no answer.
    """
    listed = {job: listed_as(job, queue) for job in jobs}
    unlisted = {job for job in jobs if not listed[job]}
    ended = {
        job for job, state in listed.items() if state and over_for_s(state) >= _patience_s(state)
    }
    endings = history.endings({job.job for job in ended}, {job.job for job in unlisted})
    first = {job.preflight for job in unlisted | ended if job.preflight}
    preflights = {job: _failed_preflight(job, sweep, queue, history) for job in first}
    ends = {}
    for job, state in listed.items():
        ending, quiet_s, unseen = listed_as(job, endings) or state, 0.0, None
        try:
            quiet_s = over_for_s(state) if state else _quiet_s(sweep, job)
        except OSError as error:
            unseen = error
        settle, held = quiet_s > _patience_s(ending), preflights.get(job.preflight or "", "")
        ends[job] = End(ending, settle, *status_of(job.job, ending, job.log), held, unseen)
    return ends


def _failed_preflight(
    job: str, sweep: Path, queue: Mapping[str, JobState], history: History
) -> str:
    """Why the cells that depend on a preflight were not started; '' where it held none of them."""
    report = report_of(sweep, job)
    if report is not None:
        problem = "" if report.ok else f"job {job}, {report.problems[0]}"
    elif job in queue and not queue[job].ended:
        problem = ""
    else:
        ending = history.endings((), [job]).get(job)
        if ending is not None and (not ending.ended or ending.state == "COMPLETED"):
            return ""  # it has passed, or still may
        log = _log_of(job, sweep)
        problem = status_of(job, ending, log)[1]
        problem += f"; read {log}" if log else ""
    return f"not started, as its preflight did not pass: {problem}" if problem else ""


def _patience_s(ending: JobState | None) -> float:
    """How long after its last sign a job counts as over, by what Slurm says of it."""
    if ending is None:
        return FORGOTTEN_S
    if not ending.ended:  # what the controller knows to be alive is never over
        return RUNAWAY_S if ending.source == "sacct" else math.inf
    return SETTLE_WELL_S if ending.state == "COMPLETED" else SETTLE_S


def elsewhere(sweep: Path, submission: Submitted | RunNote, history: History) -> str:
    """Why Slurm, as it is asked here, cannot know what was submitted, and what to do; '' where it
    can.

    Raises:
        SlurmError: no answer.
    """
    user, cluster = submission.user, submission.cluster
    file = shlex.quote(str(note_file(sweep, submission.run)))
    remove = f"once the jobs of this submission have ended, remove its note: rm {file}"
    if user is not None and user != os.getuid():
        name = str(user)
        with suppress(KeyError):
            name = pwd.getpwuid(user).pw_name
        return f"submitted by user {name}, of whose jobs others may see nothing; {remove}"
    if cluster is not None and (here := history.cluster()) != cluster:
        return (
            f"submitted on cluster {cluster}, and this shell asks cluster {here or '(unnamed)'}: "
            f"ask again where that cluster's commands are loaded, or, {remove}"
        )
    return ""


def _quiet_s(sweep: Path, job: Submitted) -> float:
    """Seconds since a job that is in no list gave a last sign: its cell's files, its log, its
    submission. The clock is the file server's, as are the files' times.

    Raises:
        OSError: a folder that is there cannot be listed: what is in it may be of now.
    """
    times = [job.at.timestamp()]
    for folder in (sweep / job.cell, sweep / job.cell / "logs"):
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


#: Slurm's word, its exit code and its signal (FAILED 127:0); status of the record, and a sentence.
#: The first that fits counts. None is good: a supervisor would have said so itself.
_ENDS: tuple[tuple[str, Status, str], ...] = (
    ("OUT_OF_MEMORY *", "failed", "it used more memory than it had asked for, and was ended"),
    ("CANCELLED *", "cancelled", "it was cancelled, by scancel or by the site"),
    ("TIMEOUT *", "timeout", "Slurm ended it at its time limit{limit}"),
    ("DEADLINE *", "timeout", "Slurm ended it at its deadline"),
    ("PREEMPTED *", "preempted", "Slurm ended it for a job of higher priority"),
    ("NODE_FAIL *", "lost", "a node that it ran on failed{hint}"),
    ("BOOT_FAIL *", "lost", "a node that it was to run on did not come up{hint}"),
    ("COMPLETED *", "lost", "Slurm says that it completed, yet it left no record"),
    # slurmstepd's "signal" for a job whose output files cannot be made
    ("FAILED *:53", "failed", "Slurm could not open the job's log on the node (ExitCode 0:53), so "
     "nothing was started: the node does not see the results folder, or may not write there. Name "
     "a folder on a file system that all nodes share with RESULTS=DIR"),
    ("FAILED *:[1-9]*", "lost", "its supervisor was ended by {signal}"),
    # of the batch script, before the supervisor has begun
    ("FAILED 127:*", "failed", "its batch script found no Python on the node (exit code 127): the "
     "environment of this checkout must be at the same path on all nodes; PYTHON= names one that "
     "is"),
    ("FAILED 126:*", "failed", "its batch script may not run the Python of this checkout on the "
     "node (exit code 126): the folders on its way must be open to you there"),
    (f"FAILED {SETUP_FAILED}:*", "failed", "{said}. Correct `modules:` or `setup:` of the site "
     "file; `|| true` after a line allows it to fail"),
    (f"FAILED {NO_TASKS}:*", "failed", "the node does not see the results folder: name one on "
     "a file system that all nodes share with RESULTS=DIR"),
    ("FAILED [0-9]*", "failed", "its batch script ended with exit code {code}{because}"),
    ("*", "lost", "Slurm says {state}{because}"),
)  # fmt: skip


#: What was printed since an earlier start of the job, and which line failed.
_SETUP_END = re.compile(
    r"(?sm)(?:.*^\[(?:supervisor|preflight)\] [^\n]*)?(.*)" + re.escape(SETUP_MARK) + r"([^\n]*)"
)


def status_of(job: str, ending: JobState | None, log: Path | None = None) -> tuple[Status, str]:
    """The status of a record for an attempt that left none, and a sentence about its job's end.
    ``log``: of the job, where it is known."""
    if ending is None or not ending.ended:
        return "lost", f"Slurm no longer knows job {job}"
    code, number = "?" if ending.code is None else ending.code, ending.signal or 0
    end = f"{ending.state} {code}:{number}"
    status, text = next((status, text) for fits, status, text in _ENDS if fnmatch(end, fits))
    because = f" ({ending.reason})" if ending.reason not in ("", "NonZeroExitCode") else ""
    nodes = f" (on {ending.nodes})" if ending.nodes else ""
    name = next((one.name for one in signal.Signals if one == number), f"signal {number}")
    said = _said(log) if "{said}" in text else ""
    limit = _limit(log) if log and "{limit}" in text else ""
    text = text.format(signal=name, code=code, state=ending.state, because=because, said=said,
                       limit=limit, hint=exclude_hint(ending.nodes, failed=False))  # fmt: skip
    return status, f"job {job}{nodes}: {text}"


def _said(log: Path | None) -> str:
    """Which line of the site's file ended a batch script, and what was printed before that."""
    end = _SETUP_END.search("\n".join(tail_of(log) if log else ()))
    if end is None:
        return "a line of the site file failed on the node"
    printed = " / ".join(line.strip() for line in end[1].split("\n") if line.strip())
    return f"{end[2]}: {printed[-MOST_CHARACTERS:] or 'it printed nothing'}"


def _limit(log: Path) -> str:
    """The limit of a preflight, and what sets it; '' for other jobs."""
    with suppress(OSError, ValueError):
        payload = json.loads((log.parent / TASKS_NAME).read_bytes())
        if payload["program"] == PREFLIGHT:
            site = PreflightTask.model_validate(payload["tasks"][0]).site
            key = f"raise preflight_s ({site.preflight_s} s) of the site file"
            return f", {minutes_for(site)} min: {key}, or shorten its modules: and setup:"
    return ""


def _log_of(job: str, sweep: Path) -> Path | None:
    """Log of a job of which only the id is known, in the folder of results that has this sweep."""
    logs = sorted(sweep.parent.glob(f"*/{SUBMITIT}/*/{log_name(job)}"))
    return logs[-1] if logs else None


def over_for_s(job: JobState) -> float:
    """Seconds since an ended job's end; infinite where it never began: it then has no nodes."""
    ran_s = seconds_of(job.elapsed)
    if job.start is None or ran_s is None or (ran_s == 0 and not job.nodes):
        return math.inf
    return (datetime.now(UTC) - job.start).total_seconds() - ran_s


def pause_s(every_s: float | None, since: float) -> float:
    """Seconds until the next look. ``every_s``: of the site, where it says so; ``since``: the first
    look, monotonic: what is wrong with a submission shows soon."""
    if every_s is not None:
        return every_s
    return FIRST_S if time.monotonic() - since < FIRST_FOR_S else LATER_S


def wait_for(job: str, site: Site, what: str) -> None:
    """Until Slurm says that a job has ended, or twice in a row that it does not know it, saying as
    ``what`` why it waits.

    Raises:
        SlurmError: no answer, and none is to be expected.
    """
    said, began, unknown = "", time.monotonic(), 0
    while True:
        try:
            state = query(arrays=[job]).get(job)
            # a controller that was restarted knows its jobs in part only at first
            unknown = unknown + 1 if state is None else 0
            if unknown == 2 or (state is not None and state.ended):
                return
            why = "" if state is None else in_words(state)
        except SlurmError as error:
            if not error.passing:
                raise
            why = f"Slurm gives no answer ({error})"
        if why not in ("", said):
            say(f"{what}: {why}")
            said = why
        time.sleep(pause_s(site.poll_s, began))


def end_of(job: str, sweep: Path) -> str:
    """How a single job ended, in words. ``sweep``: a folder next to that of its submission."""
    try:
        return status_of(job, History().endings([job]).get(job), _log_of(job, sweep))[1]
    except SlurmError as error:
        return f"job {job}; Slurm gives no answer: {error}"
