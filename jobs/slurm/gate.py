"""Hold a sweep until the cluster's seams were looked at: the preflight job that its arrays need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from jobs.options import say
from jobs.slurm.inventory import preflight_folder
from jobs.slurm.notes import PREFLIGHT, comment_of
from jobs.slurm.preflight import (
    FOLDER_NAME,
    PreflightTask,
    key_of,
    minutes_for,
    recent,
    run_preflight,
)
from jobs.slurm.script import parameters
from jobs.slurm.send import Sending
from jobs.slurm.shape import Shape
from jobs.slurm.submit import submit_array
from jobs.slurm.units import Array, Unit


def largest(arrays: Sequence[Array]) -> Shape:
    return max((array.shape for array in arrays), key=lambda shape: (shape.nodes, shape.size))


def hold_by_preflight(sending: Sending, shape: Shape) -> str | None:
    """Submit the preflight job on as many nodes as ``shape``; None when a recent one was good.

    Raises:
        SlurmError: sbatch refused, or gave no answer.
    """
    now = datetime.now(UTC)
    task = preflight_task(sending, shape, now)
    if (good := recent(sending.folder, task.key, now)) is not None:
        say(f"preflight: whole {(now - good.at).total_seconds() / 60:.0f} min ago (job {good.job})")
        return None
    job = submit_preflight(sending, task)
    say(f"preflight: job {job} on {shape} goes first; the cells wait for its good end")
    return job


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
    shape = Shape(task.nodes, task.ranks_per_node)
    asked = parameters(
        sending.site, preflight_array(sending, shape), name=sending.job_name, root=sending.root,
        comment=comment_of(folder.name, PREFLIGHT),
    )  # fmt: skip
    private = preflight_folder(sending.folder, folder.name)
    told = [task.model_dump(mode="json")]
    return submit_array(run_preflight, told, private, asked, sending.site.slurm_conf)
