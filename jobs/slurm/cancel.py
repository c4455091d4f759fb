"""`make cancel`: end all jobs of a sweep, in as few calls as can be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from jobs.slurm.client.run import Answer, run
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import NOTES_NAME, OURS, RunNote, is_of_run
from train.record.atomic import write_atomically

CANCEL_NAME = "cancel"
#: A command line does not take any number of ids.
MAX_IDS = 500

#: scancel says so of jobs that ended meanwhile, and of arrays whose elements all have.
_OVER = ("already completing or completed", "invalid job id specified")


def jobs_of_sweep(
    notes: Iterable[RunNote], broken: Iterable[str], queue: Mapping[str, JobState]
) -> dict[str, int]:
    """Array or job id -> how many of its jobs are alive, of all that a sweep submitted.

    A noted id alone does not make a job ours: on another cluster, or after a controller lost its
    state, it is somebody's else. ``broken``: runs whose notes are not readable.
    """
    notes = list(notes)
    runs = {*broken, *(note.run for note in notes)}
    ids = {array.job_id: note for note in notes for array in note.arrays if array.job_id}
    ids |= {note.preflight_job: note for note in notes if note.preflight_job}
    found: dict[str, int] = {}
    for job in queue.values():
        note = ids.get(job.array)
        named = note is not None and job.name == note.job_name and not job.comment.startswith(OURS)
        alive = not job.ended and job.state not in ("COMPLETING", "STAGE_OUT")
        if alive and (named or any(is_of_run(job, run) for run in runs)):
            found[job.array] = found.get(job.array, 0) + 1
    return found


def cancel_argvs(arrays: Iterable[str]) -> list[list[str]]:
    """One call for all ids. Whole arrays: one id each."""
    ids = sorted(set(arrays), key=lambda array: (len(array), array))
    return [["scancel", *ids[at : at + MAX_IDS]] for at in range(0, len(ids), MAX_IDS)]


def cancel(arrays: Iterable[str], slurm_conf: str | None, *, patience_s: float = 30) -> Answer:
    """Tell Slurm to end these jobs: supervisors get SIGTERM and leave records of status cancelled.

    May be repeated. Code 0 when all were told to end or had ended already, else what scancel
    complained of.

    Raises:
        SlurmError: no answer; some jobs may have been told all the same.
    """
    told = Answer(0, "", "")
    for argv in cancel_argvs(arrays):
        answer = run(argv, patience_s=patience_s, slurm_conf=slurm_conf)
        refusals = [line for line in answer.err.splitlines() if not _is_over(line)]
        if answer.code and refusals:
            told = Answer(answer.code, told.out + answer.out, told.err + "\n".join(refusals))
    return told


def announce_cancel(sweep: Path) -> None:
    """Keep a waiting make sweep from filling the room that becomes free."""
    folder = sweep / NOTES_NAME
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / CANCEL_NAME, f"{datetime.now(UTC).isoformat()} {os.getpid()}\n")


def last_cancel(sweep: Path) -> str | None:
    """Differs after each make cancel; '' where there was none, None where it cannot be told."""
    folder = sweep / NOTES_NAME
    try:
        next(folder.iterdir(), None)  # network file systems look again at a folder that is opened
        return (folder / CANCEL_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _is_over(line: str) -> bool:
    return not line.strip() or any(words in line.lower() for words in _OVER)
