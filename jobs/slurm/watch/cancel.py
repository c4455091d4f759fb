"""End all jobs of a sweep, in as few calls as can be."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from jobs.slurm.client.run import run
from jobs.slurm.client.squeue import ENDED, JobState
from jobs.slurm.submissions import NOTES_NAME, OURS, RunNote, is_of
from train.record.atomic import write_atomically

CANCEL_NAME = "cancel"
#: A command line does not take any number of ids.
MAX_IDS = 500
#: scancel says so of jobs that ended meanwhile, and of arrays whose elements all have.
_OVER = {"Job/step already completing or completed", "Invalid job id specified"}


def jobs_of_sweep(notes: Iterable[RunNote], queue: Mapping[str, JobState]) -> dict[str, int]:
    """Array or job id -> how many of its jobs are alive, of all that a sweep submitted.

    A noted id alone does not make a job ours: on another cluster, or after a controller lost its
    state, it is somebody else's.
    """
    asked = [(note, index) for note in notes for index in range(len(note.arrays))]

    def is_ours(job: JobState) -> bool:
        plain = not job.comment.startswith(OURS)  # a site may keep comments for itself
        return any(
            is_of(job, note.run, note.part(index))
            or (plain and (job.array, job.name) == (note.arrays[index].job_id, note.job_name))
            for note, index in asked
        )

    over = (*ENDED, "COMPLETING", "STAGE_OUT")
    return Counter(job.array for job in queue.values() if job.state not in over and is_ours(job))


def cancel(arrays: Iterable[str], *, patience_s: float = 30) -> str:
    """Make Slurm end these jobs: supervisors get SIGTERM and leave records of status cancelled.

    May be repeated. Returns what scancel complained of; '' when all were told to end, or had ended
    already.

    Raises:
        SlurmError: no answer; some jobs may have been told all the same.
    """
    ids = sorted(set(arrays), key=lambda array: (len(array), array))
    complaints: list[str] = []
    for at in range(0, len(ids), MAX_IDS):
        argv = ["scancel", *ids[at : at + MAX_IDS]]
        answer = run(argv, patience_s=patience_s)
        if answer.code and (not answer.causes or set(answer.causes) - _OVER):
            complaints.append(answer.words)
    return " ".join(complaints)


def announce_cancel(sweep: Path) -> None:
    """Keep a waiting make sweep from filling the room that becomes free."""
    folder = sweep / NOTES_NAME
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CANCEL_NAME, f"{datetime.now(UTC).isoformat()} {os.getpid()}\n")


def last_cancel(sweep: Path) -> str | None:
    """Differs after each make cancel; '' where there was none, None where it cannot be read."""
    folder = sweep / NOTES_NAME
    try:
        next(folder.iterdir(), None)  # network file systems look again at a folder that is opened
        return (folder / CANCEL_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError:
        return None
