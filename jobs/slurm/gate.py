"""Hold a sweep until the cluster's seams were looked at: the preflight job that its arrays need."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from jobs.options import say
from jobs.slurm.notes import (
    PREFLIGHT,
    ArrayNote,
    RunNote,
    adopt,
    array_folder,
    comment_of,
    read_notes,
)
from jobs.slurm.preflight import FOLDER_NAME, PreflightTask, key_of, minutes_for, recent
from jobs.slurm.queue import JobState
from jobs.slurm.script import script_text
from jobs.slurm.send import Sending
from jobs.slurm.shape import Shape
from jobs.slurm.submit import submit
from jobs.slurm.units import Array, Unit


def largest(arrays: Sequence[Array]) -> Shape:
    return max((array.shape for array in arrays), key=lambda shape: (shape.nodes, shape.size))


def is_whole(sending: Sending, task: PreflightTask) -> bool:
    """Whether a recent preflight answers this one."""
    now = datetime.now(UTC)
    if (good := recent(sending.folder, task.key, now)) is None:
        return False
    say(f"preflight: passed {(now - good.at).total_seconds() / 60:.0f} min ago (job {good.job})")
    return True


def in_queue(sending: Sending, task: PreflightTask, queue: Mapping[str, JobState]) -> str | None:
    """An equal preflight that an earlier run submitted and that has not ended."""
    for note in reversed(read_notes(sending.folder)[0]):
        if note.kind == PREFLIGHT and note.key == task.key:
            job = adopt(note, queue).arrays[0].job_id
            if job is not None and job in queue and not queue[job].ended:
                say(f"preflight: job {job} of an earlier make sweep has not ended yet: used")
                return job
    return None


def preflight_task(sending: Sending, shape: Shape, now: datetime) -> PreflightTask:
    """``now`` gives its folder a name of its own."""
    folder = sending.folder / FOLDER_NAME / f"{now:%Y%m%dT%H%M%S%f}"
    task = PreflightTask(
        folder=str(folder),
        key="",
        site=sending.site,
        nodes=shape.nodes,
        ranks_per_node=shape.ranks_per_node,
        image=sending.image.path,
        root=str(sending.root),
        data=str(sending.data),
        store=str(sending.store),
        results=str(sending.folder),
        folders=sending.folders,
    )
    return task.model_copy(update={"key": key_of(task, sending.image.digest)})


def preflight_array(sending: Sending, shape: Shape) -> Array:
    minutes = minutes_for(sending.site)
    return Array(shape, (Unit((PREFLIGHT,), shape, minutes),), minutes, 1)


def submit_preflight(sending: Sending, task: PreflightTask) -> str:
    """Returns the job's id; raises SlurmError."""
    folder = Path(task.folder)
    folder.mkdir(parents=True)
    array = preflight_array(sending, Shape(task.nodes, task.ranks_per_node))
    note = RunNote(
        run=folder.name,
        site=sending.site_name,
        job_name=sending.job_name,
        slurm_conf=sending.site.slurm_conf,
        submitted_at=datetime.now(UTC),
        arrays=(
            ArrayNote(
                units=((PREFLIGHT,),), nodes=task.nodes, ranks_per_node=task.ranks_per_node,
                minutes=array.minutes,
            ),
        ),
        kind=PREFLIGHT,
        cluster=sending.cluster,
        user=os.getuid(),
        key=task.key,
    )  # fmt: skip
    script = script_text(
        sending.site, array, array_folder(sending.folder, note.run, PREFLIGHT),
        name=sending.job_name, root=sending.root, comment=comment_of(note.run, PREFLIGHT),
    )  # fmt: skip
    note = submit(sending.folder, note, 0, [task.model_dump(mode="json")], script)
    return note.arrays[0].job_id or ""
