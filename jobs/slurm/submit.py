"""Hand jobs to Slurm, one call of sbatch each, so that each can be found again whatever happens."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.slurm.commands import Answer, SlurmError, answer_of, is_away
from jobs.slurm.notes import RunNote, array_folder, is_of, write_note
from jobs.slurm.queue import query
from jobs.slurm.refusals import is_passing
from jobs.slurm.script import TASKS_NAME
from jobs.stop import held_back
from train.record.atomic import write_atomically

#: Of folders of batch scripts, tasks and supervisors' logs: a site's environment may hold secrets.
PRIVATE = 0o700
SCRIPT_NAME = "submission.sh"
#: A busy controller is tried again by sbatch itself, for about so long.
SBATCH_S = 120.0
#: A job that was submitted is in the queue at once, or a moment later.
LOOKS, LOOK_S = 3, 1.0


@dataclass(frozen=True)
class Accepted:
    """sbatch's answer."""

    job: str
    cluster: str | None = None  # where sbatch was to choose among several


def submit(
    sweep: Path,
    note: RunNote,
    index: int,
    tasks: Sequence[Mapping[str, Any]],
    script: str,
) -> RunNote:
    """Submit one of the jobs that the note names: an array with one element per task, or a plain
    job. The note is on disk before sbatch is called, and with the job's id before any signal is
    heard.

    Raises:
        SlurmError: sbatch refused (``passing`` is false where the request itself is wrong), or gave
            no answer: then the job may be in the queue all the same, and its comment tells.
        OSError: the folder of the sweep cannot be written.
    """
    folder = array_folder(sweep, note.run, note.part(index))
    folder.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    folder.parent.chmod(PRIVATE)
    folder.mkdir(mode=PRIVATE)
    told = json.dumps({"program": note.kind, "tasks": tasks})
    write_atomically(folder / TASKS_NAME, told, mode=0o600)
    write_atomically(folder / SCRIPT_NAME, script, mode=0o700)
    file = write_note(sweep, note)
    with held_back(signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        try:
            found = _sbatch(folder / SCRIPT_NAME, note, index)
        except SlurmError as error:
            if error.refused and not any(array.job_id for array in note.arrays):
                _discard(folder, file)
            raise
        note = note.with_id(index, found.job)
        if found.cluster is not None:
            note = note.model_copy(update={"cluster": found.cluster})
        write_note(sweep, note)
    return note


def _sbatch(script: Path, note: RunNote, index: int) -> Accepted:
    answer: Answer | None = None
    said = ""
    try:
        argv = ["sbatch", "--parsable", str(script)]
        answer = answer_of(argv, timeout_s=SBATCH_S, slurm_conf=note.slurm_conf)
        if found := job_in(answer.out):
            return found
        said = complaint(answer)
    except SlurmError as error:
        if not error.passing:
            raise  # there is no sbatch here
        said = error.came
    refused = answer is not None and answer.code != 0
    if job := _in_queue(note, index, looks=1 if refused else LOOKS, said=said):
        return Accepted(job)
    if answer is not None and answer.code == 0:
        said = (
            f"no single number of a job found in what it printed ({answer.out.strip()!r}), and no "
            "job with this submission's comment in the queue"
        )
    told = SlurmError("sbatch", said, passing=answer is None or is_passing(said))
    told.refused = refused and not is_away(said)
    raise told


def _discard(folder: Path, note: Path) -> None:
    """Remove what was written for a submission that sbatch refused: a sweep that waits for room
    would leave one for each try."""
    with suppress(OSError):
        note.unlink()
        shutil.rmtree(folder)


def _in_queue(note: RunNote, index: int, *, looks: int, said: str) -> str | None:
    """The job's id, found in the queue by what it was submitted with.

    Raises:
        SlurmError: no answer: whether it was submitted is not known.
    """
    part = note.part(index)
    for look in range(looks):
        try:
            jobs = query(note.slurm_conf)
        except SlurmError as error:
            why = f"{said}; whether it was submitted all the same is not known ({error})"
            raise SlurmError("sbatch", why, passing=error.passing or is_passing(said)) from error
        for job in jobs.values():
            if is_of(job, note.run, part):
                return job.array
        if look + 1 < looks:
            time.sleep(LOOK_S)
    return None


def job_in(text: str) -> Accepted | None:
    """The one job that sbatch, or what a site put before it, names in its output; None where it
    names none, or several. A number alone, or after the word job: other numbers are hours, or days.
    """
    plain = re.findall(r"^\s*(\d+)(?:;(\S+))?\s*$", text, re.MULTILINE)
    words = re.findall(r"submitted batch job (\d+)(?: on cluster (\S+))?", text, re.IGNORECASE)
    other = re.findall(r"\bjob(?:[ _-]?id)?[\"' :=#<]{1,4}(\d+)(?![\w:/+-]|[.,]\d)()", text, re.I)
    for found in (words, plain, other):
        jobs = {job for job, _ in found}
        if len(jobs) == 1:
            cluster = next((name for _, name in found if name), None)
            return Accepted(jobs.pop(), cluster)
        if jobs:
            return None
    return None


def complaint(answer: Answer) -> str:
    """sbatch's own words, without what a site's profile prints beside them."""
    lines = [line.strip() for line in answer.err.splitlines() if "error" in line.lower()]
    return " ".join(dict.fromkeys(lines)) or answer.words
