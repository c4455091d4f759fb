"""Hand jobs to Slurm, one call of sbatch each, so that each can be found again whatever happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.cell.needs import Need
from jobs.cell.state import FORCED, CellState, archive, recorded, write_config
from jobs.cell.stop import held_back
from jobs.config.site import NodeLayout
from jobs.slurm.client.reasons import refusal_in
from jobs.slurm.client.run import SlurmError, answer_of, is_away, is_unanswered
from jobs.slurm.client.squeue import query
from jobs.slurm.job.task import (
    PREFLIGHT,
    JobContext,
    JobTask,
    PreflightTask,
    SubmissionContext,
    Task,
    minutes_for,
)
from jobs.slurm.script import TASKS_NAME, script_text
from jobs.slurm.submissions import (
    SBATCH_S,
    SCRIPT_NAME,
    Array,
    Kind,
    RunNote,
    adopt,
    array_folder,
    comment_of,
    job_name,
    write_note,
)
from train.record.atomic import write_atomically
from train.record.lock import hold

RUN_FORMAT = "%Y%m%dT%H%M%S%f"
#: A job's id; its cluster, where sbatch was to choose among several.
Accepted = tuple[str, str | None]
#: A job that was submitted is in the queue at once, or a moment later.
LOOKS, LOOK_S = 3, 1.0
#: sbatch's words for a request that was granted.
_GRANTED = "submitted batch job"
#: The word job and a number that is no amount, time or name.
_NAMED = r"\bjob(?:[ _-]?id)?[\"' :=#<]{1,4}(\d+)(?![\w:/+-]|[.,]\d|\s*(?:h|min|day))()"


def submit_job(
    context: JobContext,
    kind: Kind,
    run: str,
    array: Array,
    tasks: Sequence[Task],
    *,
    preflight: str | None = None,
    **options: Any,
) -> str:
    """Submit an array with one element per task, or a plain job, as ``run``; its id.

    Its note is on disk before sbatch is called, and with the job's id before any signal is heard.
    ``preflight``: the job that has to end well first; ``options``: of sbatch, for this job alone.

    Raises:
        SlurmError: sbatch refused (``passing`` is false where the request itself is wrong), or gave
            no answer: then the job may be in the queue all the same, and its comment tells.
        OSError: the folder of the sweep cannot be written.
    """
    note = RunNote(
        run=run,
        site=context.site_name,
        job_name=job_name(context.name, context.folder),
        slurm_conf=context.site.slurm_conf,
        submitted_at=datetime.now(UTC),
        arrays=(array,),
        preflight_job=preflight,
        kind=kind,
        cluster=context.cluster,
        partition=context.site.partition,
        clusters=os.environ.get("SLURM_CLUSTERS", ""),
        user=os.getuid(),
    )
    part = note.part(0)
    folder = array_folder(context.folder, run, part)
    folder.mkdir(parents=True)
    payload = {"program": kind, "tasks": [task.model_dump(mode="json") for task in tasks]}
    # private: a site's environment may hold secrets. The supervisors' logs are not
    write_atomically(folder / TASKS_NAME, json.dumps(payload), mode=0o600)
    options["dependency"] = f"afterok:{preflight}" if preflight else None
    script = batch_script(context, run, part, array, **options)
    write_atomically(folder / SCRIPT_NAME, script, mode=0o700)
    file = write_note(context.folder, note)
    with held_back(signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        try:
            job, cluster = _sbatch(folder / SCRIPT_NAME, note)
        except SlurmError as error:
            if error.refused:
                # a sweep that waits for room would leave one of each for each try
                with suppress(OSError):
                    file.unlink()
                shutil.rmtree(folder, ignore_errors=True)
            raise
        note = note.model_copy(update={"cluster": cluster or note.cluster}).with_id(0, job)
        with suppress(OSError):  # the next look finds the id in the queue, and writes it down
            write_note(context.folder, note)
    return job


def batch_script(context: JobContext, run: str, part: str, array: Array, **options: Any) -> str:
    """What sbatch gets. ``options``: of sbatch, for this job alone."""
    return script_text(
        context.site,
        array.shape,
        array_folder(context.folder, run, part),
        minutes=array.minutes,
        elements=len(array.cells),
        parallel=array.parallel,
        name=job_name(context.name, context.folder),
        root=context.root,
        comment=comment_of(run, part),
        **options,
    )


def _sbatch(script: Path, note: RunNote) -> Accepted:
    """Call sbatch once; where it does not name the job, the queue does."""
    named, refused, said = None, False, ""
    try:
        argv = ["sbatch", "--parsable", str(script)]
        answer = answer_of(argv, timeout_s=SBATCH_S)
    except SlurmError as error:
        if not error.passing:
            error.refused = True  # there is no sbatch here
            raise
        printed, passing = error.came, True
    else:
        # of a wrapper that failed, a number is an amount as likely as a job
        failed, named = answer.code != 0, job_in(answer.out)
        if named and not failed:
            return named
        printed = answer.words
        if not failed:
            printed = (
                f"it ended well, but printed no job id ({printed}), and no job of this submission "
                "is in the queue: look at what this site puts before sbatch"
            )
        said = refusal_in(answer)
        granted = re.search(rf"{_GRANTED} [1-9]", answer.out, re.IGNORECASE)
        refused = failed and not (granted or is_unanswered(said))
        passing = not refused or is_away(said)
    for look in range(1 if refused and not named else LOOKS):
        time.sleep(LOOK_S if look else 0)
        try:
            job = adopt(note, query()).arrays[0].job_id
        except SlurmError as error:
            why = f"{printed}; whether it was submitted all the same is not known ({error})"
            raise SlurmError("sbatch", why, passing=error.passing or passing) from error
        if job is not None:
            return job, None
    failure = SlurmError("sbatch", said, passing=passing, printed=printed)
    failure.refused = refused
    raise failure


def job_in(text: str) -> Accepted | None:
    """The one job that sbatch, or what a site put before it, names in its output; None where it
    names none, or several. A number alone, or after the word job: other numbers are hours, or days.
    """
    plain = re.findall(r"^\s*([1-9]\d*)(?:;(\S+))?\s*$", text, re.MULTILINE)
    words = re.findall(rf"{_GRANTED} (\d+)(?: on cluster (\S+))?", text, re.IGNORECASE)
    other = re.findall(_NAMED, text, re.IGNORECASE)
    named = next((jobs for jobs in (words, plain, other) if jobs), [])
    if len({job for job, _ in named}) != 1:
        return None
    return named[0][0], next((cluster for _, cluster in named if cluster), None)


def submit_preflight(context: SubmissionContext, layout: NodeLayout) -> tuple[str, Path]:
    """Returns the job's id and the folder of its report; raises as :func:`submit_job`."""
    run = f"{datetime.now(UTC):{RUN_FORMAT}}-{context.preflight_key}"
    folder = context.folder.parent / PREFLIGHT / run
    folder.mkdir(parents=True)
    own = Need(what="the preflight's folder", path=str(folder), use="write")
    shared = context.task(layout) | {"needs": (*context.needs, own)}
    task = PreflightTask(folder=str(folder), sweep=str(context.folder), **shared)
    array = Array(cells=(PREFLIGHT,), minutes=minutes_for(context.site), **vars(layout))
    try:
        return submit_job(context, PREFLIGHT, run, array, [task]), folder
    except SlurmError as error:
        if error.refused:
            with suppress(OSError):
                folder.rmdir()
        raise


def submit_cells(
    context: SubmissionContext,
    array: Array,
    cells: Sequence[CellState],
    preflight: str | None,
) -> str:
    """Submit an array of these cells; the job's id. Raises as :func:`submit_job`.

    ``preflight``: the job that has to end well first.
    """
    for cell in cells:
        with suppress(OSError):  # the job of this cell alone meets it, too
            write_config(cell.folder, cell.config)
    forced = [cell for cell in cells if cell.status == FORCED]
    asked_at = datetime.now(UTC)
    run = f"{asked_at:{RUN_FORMAT}}"
    tasks = tasks_of(context, array, asked_at, {cell.name for cell in forced})
    job = submit_job(context, "cells", run, array, tasks, preflight=preflight)
    for cell in forced:
        # should the job never begin, the cell must not look done; a supervisor may have been first
        with suppress(OSError), hold(cell.folder) as ours:
            now = recorded(cell.config, cell.folder).forced()  # one that cannot be read is not
            if ours and (now.status, now.ended_at) == (FORCED, cell.ended_at):
                archive(cell.folder)
    return job


def tasks_of(
    context: SubmissionContext, array: Array, asked_at: datetime, forced: Collection[str]
) -> list[JobTask]:
    """What each element of an array is to do. ``forced``: cells whose records are put aside."""
    shared, sweep = context.task(array.shape), context.folder
    return [
        JobTask(
            cell=str(sweep / name),
            forced=name in forced,
            asked_at=asked_at,
            stall_s=context.stall_s,
            minutes=array.minutes,
            data=str(context.data),
            store=str(context.store),
            git_commit=context.git_commit,
            git_dirty=context.git_dirty,
            **shared,
        )
        for name in array.cells
    ]
