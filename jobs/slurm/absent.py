"""What is left to go by where a job stands in no list."""

from __future__ import annotations

import os
import pwd
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.ledger import Standing
from jobs.options import NoAnswer
from jobs.slurm.history import History
from jobs.slurm.notes import RunNote, Submitted, array_folder, is_of_run
from jobs.slurm.queue import JobState
from jobs.slurm.submit import SBATCH_S, SCRIPT_NAME

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
