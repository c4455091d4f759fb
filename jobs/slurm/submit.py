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

from jobs.slurm.commands import Answer, SlurmError, answer_of
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
#: sbatch's words for a request that was sent: the controller may grant it all the same.
_ON_ITS_WAY = ("timed out", "zero bytes", "connection reset", "reset by peer")
#: The word job and a number that is no amount, time or name.
_NAMED = r"\bjob(?:[ _-]?id)?[\"' :=#<]{1,4}(\d+)(?![\w:/+-]|[.,]\d|\s*(?:h|min|day))()"


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
            if error.refused:
                with suppress(OSError):  # a sweep that waits for room would leave one for each try
                    shutil.rmtree(folder)
                    if not any(array.job_id for array in note.arrays):
                        file.unlink()
            raise
        note = note.with_id(index, found.job)
        if found.cluster is not None:
            note = note.model_copy(update={"cluster": found.cluster})
        with suppress(OSError):  # the next look finds the id in the queue, and writes it down
            write_note(sweep, note)
    return note


def _sbatch(script: Path, note: RunNote, index: int) -> Accepted:
    answer: Answer | None = None
    said = ""
    try:
        argv = ["sbatch", "--parsable", str(script)]
        answer = answer_of(argv, timeout_s=SBATCH_S, slurm_conf=note.slurm_conf)
        if found := job_in(answer.out, certain=answer.code != 0):
            return found
        said = complaint(answer)
    except SlurmError as error:
        if not error.passing:
            raise  # there is no sbatch here
        said = error.came
    refused = answer is not None and answer.code != 0
    refused = refused and not any(words in said.lower() for words in _ON_ITS_WAY)
    looks = 1 if refused else LOOKS
    if job := _in_queue(note, index, looks=looks, said=said):
        return Accepted(job)
    if answer is not None and answer.code == 0:
        said = (
            f"it ended well, but printed no job id ({answer.out.strip()!r}), and no job of this "
            "submission is in the queue: look at what this site puts before sbatch"
        )
    silent = answer is None or answer.code == 0
    told = SlurmError("sbatch", said, passing=silent or is_passing(said))
    told.refused = refused
    raise told


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


def job_in(text: str, *, certain: bool = False) -> Accepted | None:
    """The one job that sbatch, or what a site put before it, names in its output; None where it
    names none, or several. A number alone, or after the word job: other numbers are hours, or days.

    ``certain``: only in a form of sbatch's own.
    """
    plain = re.findall(r"^\s*(\d+)(?:;(\S+))?\s*$", text, re.MULTILINE)
    words = re.findall(r"submitted batch job (\d+)(?: on cluster (\S+))?", text, re.IGNORECASE)
    other = re.findall(_NAMED, text, re.IGNORECASE)
    for found in (words, plain, [] if certain else other):
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
