"""What is left to go by where a job stands in no list."""

from __future__ import annotations

import os
import pwd
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from jobs.options import NoAnswer
from jobs.slurm.history import History
from jobs.slurm.notes import RunNote, Submitted, is_of_run
from jobs.slurm.queue import JobState


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
    submission. The clock is the file server's, as are the files' times."""
    times = [told.at.timestamp()]
    for cell in told.cells:
        for folder in (sweep / cell, sweep / cell / "logs"):
            try:
                # a lock file, too, is touched by whoever looks
                times += [f.stat().st_mtime for f in folder.iterdir() if not f.name.startswith(".")]
            except FileNotFoundError:
                continue
            except OSError:
                return 0.0  # what cannot be seen may be of now
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
                f"{text}. Jobs {', '.join(sorted(jobs))} are of that run, and their cells would "
                "be submitted again: make cancel ends them, or wait for their end"
            )
