"""Hold a sweep until the cluster's seams were looked at: the preflight job that its arrays need."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from jobs.options import say
from jobs.slurm.notes import PREFLIGHT, comment_of
from jobs.slurm.preflight import (
    FOLDER_NAME,
    MINUTES,
    PreflightTask,
    key_of,
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
    key = key_of(sending.site, shape, sending.image.digest, sending.image.path, sending.root)
    now = datetime.now(UTC)
    if (good := recent(sending.folder, key, now)) is not None:
        say(f"preflight: whole {(now - good.at).total_seconds() / 60:.0f} min ago (job {good.job})")
        return None
    job = submit_preflight(sending, shape, key, f"{now:%Y%m%dT%H%M%S%f}")
    say(f"preflight: job {job} on {shape} goes first; the cells wait for its good end")
    return job


def submit_preflight(sending: Sending, shape: Shape, key: str, run: str) -> str:
    folder = sending.folder / FOLDER_NAME / run
    folder.mkdir(parents=True)
    task = PreflightTask(
        folder=str(folder), key=key, site=sending.site, nodes=shape.nodes,
        ranks_per_node=shape.ranks_per_node, image=sending.image.path, root=str(sending.root),
        data=str(sending.data),
        store=str(sending.store), results=str(sending.folder),
    )  # fmt: skip
    array = Array(shape, (Unit((PREFLIGHT,), shape, MINUTES),), MINUTES, 1)
    comment = comment_of(run, PREFLIGHT)
    asked = parameters(
        sending.site, array, name=sending.job_name, root=sending.root, comment=comment
    )
    private = sending.folder / ".submitit" / f"{run}-{PREFLIGHT}"
    told = [task.model_dump(mode="json")]
    return submit_array(run_preflight, told, private, asked, sending.site.slurm_conf)
