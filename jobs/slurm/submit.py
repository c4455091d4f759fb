"""Hand jobs to Slurm, one call of sbatch each, so that each can be found again whatever happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.cell.lock import hold
from jobs.cell.state import FORCED, CellState, archive
from jobs.cell.stop import held_back
from jobs.slurm.arrays import Array, ArrayTask, arrays_of, units_of
from jobs.slurm.client.reasons import is_passing
from jobs.slurm.client.run import Answer, SlurmError, answer_of
from jobs.slurm.client.squeue import query
from jobs.slurm.job.step_failure import failed_node
from jobs.slurm.job.task import JobTask
from jobs.slurm.script import TASKS_NAME, script_text
from jobs.slurm.submissions import (
    ArrayNote,
    RunNote,
    SubmissionContext,
    array_folder,
    comment_of,
    is_of,
    write_note,
)
from train.record.atomic import write_atomically
from train.record.run import RECORD_NAME

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


def plan_arrays(sending: SubmissionContext, cells: Sequence[CellState]) -> tuple[Array, ...]:
    """Raises ConfigError where cells do not fit the site."""
    units = units_of([cell.config for cell in cells], sending.site, pack=sending.pack)
    return arrays_of(units, sending.site)


def send(
    sending: SubmissionContext,
    arrays: Sequence[Array],
    cells: Sequence[CellState],
    preflight: str | None,
    avoid: Collection[str] = (),
) -> Iterator[tuple[Array, str]]:
    """Submit the arrays one after another; each with its job's id as soon as it has one.

    ``cells``: those in the arrays; ``preflight``: the job that has to end well first; ``avoid``:
    nodes that failed under cells of these arrays.

    Raises:
        SlurmError: sbatch refused or gave no answer; the note tells what was submitted before.
    """
    asked_at = datetime.now(UTC)
    run = f"{asked_at:%Y%m%dT%H%M%S%f}"
    note = RunNote(
        run=run,
        site=sending.site_name,
        job_name=sending.job_name,
        slurm_conf=sending.site.slurm_conf,
        submitted_at=asked_at,
        arrays=tuple(_note(array, sending) for array in arrays),
        preflight_job=preflight,
        cluster=sending.cluster,
        user=os.getuid(),
    )
    forced = {cell.config.cell_id() for cell in cells if cell.status == FORCED}
    marks = {name: _mark(sending.folder / name) for name in forced}
    for index, array in enumerate(arrays):
        tasks = [
            unit_task(sending, unit, f"{run}-{index}/{place}", asked_at, forced)
            for place, unit in enumerate(array.units)
        ]
        script = script_text(
            sending.site, array, array_folder(sending.folder, run, index),
            name=sending.job_name, root=sending.root,
            dependency=f"afterok:{preflight}" if preflight else None,
            comment=comment_of(run, index), exclude=",".join(sorted(avoid)) or None,
        )  # fmt: skip
        plain = [task.model_dump(mode="json") for task in tasks]
        try:
            note = submit(sending.folder, note, index, plain, script)
        except SlurmError as error:
            error.submission = (run, note.part(index), array)
            raise
        for name in (name for unit in array.units for name in unit.cells if name in forced):
            _put_aside(sending.folder / name, marks[name])
        yield array, note.arrays[index].job_id or ""


def failed_nodes(cells: Sequence[CellState]) -> set[str]:
    """Nodes that failed under the last attempts of these cells."""
    return {node for cell in cells if (node := failed_node(cell.folder))}


def _mark(cell: Path) -> tuple[int, int] | None:
    """Which record is there, told without any clock."""
    try:
        found = (cell / RECORD_NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _put_aside(cell: Path, mark: tuple[int, int] | None) -> None:
    """The good record of a cell that is run by force, once its job is in the queue: should that
    never begin, the cell must not look done. A supervisor that came first has done it."""
    with suppress(OSError), hold(cell) as ours:
        if ours and mark is not None and _mark(cell) == mark:
            archive(cell)


def _note(array: Array, sending: SubmissionContext) -> ArrayNote:
    return ArrayNote(
        units=tuple(unit.cells for unit in array.units),
        nodes=array.shape.nodes,
        ranks_per_node=array.shape.ranks_per_node,
        minutes=array.minutes,
        block_seed=0 if sending.pack > 1 else None,
    )


def unit_task(
    sending: SubmissionContext,
    unit: ArrayTask,
    block: str,
    asked_at: datetime | None = None,
    forced: Collection[str] = (),
) -> JobTask:
    """What the job of one unit is told. ``forced``: cells that have a good record."""
    return JobTask(
        cells=tuple(str(sending.folder / name) for name in unit.cells),
        forced=tuple(str(sending.folder / name) for name in unit.cells if name in forced),
        asked_at=asked_at or datetime.now(UTC),
        site=sending.site,
        nodes=unit.shape.nodes,
        ranks_per_node=unit.shape.ranks_per_node,
        image=sending.image.path,
        image_digest=sending.image.digest,
        image_mark=sending.image.mark,
        root=str(sending.root),
        data=str(sending.data),
        store=str(sending.store),
        folders=sending.folders,
        stall_s=sending.stall_s,
        minutes=unit.minutes,
        block=block,
        git_commit=sending.git_commit,
        git_dirty=sending.git_dirty,
    )
