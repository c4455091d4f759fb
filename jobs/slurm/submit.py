"""Hand jobs to Slurm, one call of sbatch each, so that each can be found again whatever happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.cell.lock import hold
from jobs.cell.state import FORCED, CellState, archive
from jobs.cell.stop import held_back
from jobs.slurm.arrays import Array, arrays_of
from jobs.slurm.client.run import Answer, SlurmError, answer_of, is_away
from jobs.slurm.client.squeue import query
from jobs.slurm.job.task import JobTask
from jobs.slurm.script import TASKS_NAME, script_text
from jobs.slurm.submissions import (
    SBATCH_S,
    SCRIPT_NAME,
    JobContext,
    Kind,
    RunNote,
    SubmissionContext,
    adopt,
    array_folder,
    comment_of,
    write_note,
)
from train.config.frozen import Frozen
from train.record.atomic import write_atomically
from train.record.run import RECORD_NAME

#: Of folders of batch scripts, tasks and supervisors' logs: a site's environment may hold secrets.
PRIVATE = 0o700
#: A job's id; its cluster, where sbatch was to choose among several.
Accepted = tuple[str, str | None]
#: A job that was submitted is in the queue at once, or a moment later.
LOOKS, LOOK_S = 3, 1.0
#: sbatch's words for a request that was sent: the controller may grant it all the same.
_ON_ITS_WAY = ("timed out", "zero bytes", "connection reset", "reset by peer")
#: The word job and a number that is no amount, time or name.
_NAMED = r"\bjob(?:[ _-]?id)?[\"' :=#<]{1,4}(\d+)(?![\w:/+-]|[.,]\d|\s*(?:h|min|day))()"


def submit_job(
    context: JobContext,
    kind: Kind,
    run: str,
    array: Array,
    tasks: Sequence[Frozen],
    *,
    preflight: str | None = None,
    key: str | None = None,
    **options: Any,
) -> str:
    """Submit an array with one element per task, or a plain job, as ``run``; its id.

    Its note is on disk before sbatch is called, and with the job's id before any signal is heard.
    ``preflight``: the job that has to end well first; ``key``: of a preflight; ``options``: of
    sbatch, for this job alone.

    Raises:
        SlurmError: sbatch refused (``passing`` is false where the request itself is wrong), or gave
            no answer: then the job may be in the queue all the same, and its comment tells.
        OSError: the folder of the sweep cannot be written.
    """
    note = RunNote(
        run=run,
        site=context.site_name,
        job_name=context.job_name,
        slurm_conf=context.site.slurm_conf,
        submitted_at=datetime.now(UTC),
        arrays=(array,),
        preflight_job=preflight,
        kind=kind,
        cluster=context.cluster,
        user=os.getuid(),
        key=key,
    )
    folder = array_folder(context.folder, run, note.part(0))
    folder.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    folder.parent.chmod(PRIVATE)
    folder.mkdir(mode=PRIVATE)
    payload = {"program": kind, "tasks": [task.model_dump(mode="json") for task in tasks]}
    write_atomically(folder / TASKS_NAME, json.dumps(payload), mode=0o600)
    options["dependency"] = f"afterok:{preflight}" if preflight else None
    script = batch_script(context, run, note.part(0), array, **options)
    write_atomically(folder / SCRIPT_NAME, script, mode=0o700)
    file = write_note(context.folder, note)
    with held_back(signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        try:
            job, cluster = _sbatch(folder / SCRIPT_NAME, note)
        except SlurmError as error:
            error.submission = (run, note.part(0), array)
            if error.refused:
                with suppress(OSError):  # a sweep that waits for room would leave one for each try
                    shutil.rmtree(folder)
                    file.unlink()
            raise
        note = note.model_copy(update={"cluster": cluster or note.cluster}).with_id(0, job)
        with suppress(OSError):  # the next look finds the id in the queue, and writes it down
            write_note(context.folder, note)
    return job


def batch_script(context: JobContext, run: str, part: str, array: Array, **options: Any) -> str:
    """What sbatch gets. ``options``: of sbatch, for this job alone."""
    folder, comment = array_folder(context.folder, run, part), comment_of(run, part)
    return script_text(context.site, array, folder, name=context.job_name, root=context.root,
                       comment=comment, **options)  # fmt: skip


def _sbatch(script: Path, note: RunNote) -> Accepted:
    """Call sbatch once; where it does not name the job, the queue does."""
    refused = False
    try:
        argv = ["sbatch", "--parsable", str(script)]
        answer = answer_of(argv, timeout_s=SBATCH_S, slurm_conf=note.slurm_conf)
    except SlurmError as error:
        if not error.passing:
            raise  # there is no sbatch here
        said, passing = error.came, True
    else:
        if accepted := job_in(answer.out, certain=answer.code != 0):
            return accepted
        said, passing = complaint(answer), answer.code == 0
        refused = not passing and not any(words in said.lower() for words in _ON_ITS_WAY)
    passing = passing or is_away(said)
    for look in range(1 if refused else LOOKS):
        time.sleep(LOOK_S if look else 0)
        try:
            job = adopt(note, query(note.slurm_conf)).arrays[0].job_id
        except SlurmError as error:
            why = f"{said}; whether it was submitted all the same is not known ({error})"
            raise SlurmError("sbatch", why, passing=error.passing or passing) from error
        if job is not None:
            return job, None
    failure = SlurmError("sbatch", said, passing=passing)
    failure.refused = refused
    raise failure


def job_in(text: str, *, certain: bool = False) -> Accepted | None:
    """The one job that sbatch, or what a site put before it, names in its output; None where it
    names none, or several. A number alone, or after the word job: other numbers are hours, or days.

    ``certain``: only in a form of sbatch's own.
    """
    plain = re.findall(r"^\s*(\d+)(?:;(\S+))?\s*$", text, re.MULTILINE)
    words = re.findall(r"submitted batch job (\d+)(?: on cluster (\S+))?", text, re.IGNORECASE)
    other = re.findall(_NAMED, text, re.IGNORECASE)
    named = next((jobs for jobs in (words, plain, [] if certain else other) if jobs), [])
    if len({job for job, _ in named}) != 1:
        return None
    return named[0][0], next((cluster for _, cluster in named if cluster), None)


def complaint(answer: Answer) -> str:
    """sbatch's own words, without what a site's profile prints beside them."""
    if answer.code == 0:
        return (
            f"it ended well, but printed no job id ({answer.out.strip()!r}), and no job of this "
            "submission is in the queue: look at what this site puts before sbatch"
        )
    lines = [line.strip() for line in answer.err.splitlines() if "error" in line.lower()]
    return " ".join(dict.fromkeys(lines)) or answer.words


def plan_arrays(context: SubmissionContext, cells: Sequence[CellState]) -> tuple[Array, ...]:
    """Raises ConfigError where cells do not fit the site."""
    return arrays_of([cell.config for cell in cells], context.site, pack=context.pack)


def send(
    context: SubmissionContext,
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
    # cell -> which record is there, told without any clock
    forced = {cell.folder.name: _mark(cell.folder) for cell in cells if cell.status == FORCED}
    for array in arrays:
        asked_at = datetime.now(UTC)
        run = f"{asked_at:%Y%m%dT%H%M%S%f}"
        tasks = tasks_of(context, array, run, asked_at, forced)
        job = submit_job(
            context, "cells", run, array, tasks,
            preflight=preflight, exclude=",".join(sorted(avoid)) or None,
        )  # fmt: skip
        for name in (name for unit in array.units for name in unit if name in forced):
            _put_aside(context.folder / name, forced[name])
        yield array, job


def _mark(cell: Path) -> tuple[int, int] | None:
    try:
        status = (cell / RECORD_NAME).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _put_aside(cell: Path, mark: tuple[int, int] | None) -> None:
    """The good record of a cell that is run by force, once its job is in the queue: should that
    never begin, the cell must not look done. A supervisor that came first has done it."""
    with suppress(OSError), hold(cell) as ours:
        if ours and mark is not None and _mark(cell) == mark:
            archive(cell)


def tasks_of(
    context: SubmissionContext, array: Array, run: str, asked_at: datetime, forced: Collection[str]
) -> list[JobTask]:
    """What the jobs of an array's elements are told. ``forced``: cells that have a good record."""
    return [
        JobTask(
            cells=tuple(str(context.folder / name) for name in cells),
            forced=tuple(str(context.folder / name) for name in cells if name in forced),
            asked_at=asked_at,
            site=context.site,
            nodes=array.nodes,
            ranks_per_node=array.ranks_per_node,
            image=context.image.path,
            image_digest=context.image.digest,
            image_mark=context.image.mark,
            root=str(context.root),
            data=str(context.data),
            store=str(context.store),
            folders=context.folders,
            stall_s=context.stall_s,
            minutes=array.minutes,
            block=f"{run}-0/{place}",
            git_commit=context.git_commit,
            git_dirty=context.git_dirty,
        )
        for place, cells in enumerate(array.units)
    ]
