"""The line that starts ranks on Slurm, as values: srun, the container, the program of each rank.
Nothing runs here.

What each setting is for was found by running it (Slurm 22.05, Open MPI 4.1, Apptainer 1.4).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from jobs.cell.container import IMAGE_PYTHON, NO_IMAGE, Container, container_argv
from jobs.cell.launch import RENDEZVOUS, rank_argv, rendezvous_stem
from jobs.cell.needs import binds_of
from jobs.config.site import Site
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step_ranks import StepLine
from jobs.slurm.job.task import JobTask, Task
from train.config.run import RunConfig
from train.program.environment import NOTHING

GLOO = "gloo"
#: Options of sbatch and srun, also shortened, and Slurm's variables for them: each of them asks for
#: the GPUs of a task, and makes srun show a task these GPUs alone.
_GPUS_OF_TASKS = re.compile(
    r"gpus[-_]per[-_]t|ntasks[-_]per[-_]gpu|tres[-_]per[-_]t\w*=[^-]*gpu", re.IGNORECASE
)


def launch(
    task: JobTask,
    config: RunConfig,
    cell: Path,
    attempt: int,
    allocation: Allocation,
    resume: bool,
) -> StepLine:
    """The launch line and what it adds to the environment; pure."""
    rank = rank_argv(
        cell, data=task.data, store=task.store, attempt=attempt, stall_s=task.stall_s,
        resume=resume, supervised=True, stop_at=allocation.warning_due,
    )  # fmt: skip
    # a new name for each start: an old address must never be met at
    meeting = f"{rendezvous_stem(cell)}{attempt}-{allocation.job}-{allocation.restarts}"
    return step_line(
        task,
        rank,
        logs=cell / "logs",
        meeting=Path(meeting),
        together=config.gpus // config.processes,
    )  # fmt: skip


def step_line(
    task: Task,
    rank: Sequence[str],
    *,
    logs: Path,
    meeting: Path,
    all_end: bool = True,
    together: int = 1,
) -> StepLine:
    """``srun`` with one task per rank, and what it adds to the environment of the batch job. Nodes,
    ranks and image are those of ``task``.

    Args:
        rank: what the image's Python is given, or without an image the one that runs here.
        logs: each rank's output goes into its own file there.
        meeting: file through which Gloo ranks meet; MPI's need none.
        all_end: one bad end ends the step at once, because its peers would wait for ever.
        together: ranks that are one task, with the cores and GPUs of all of them.
    """
    site, image = task.site, task.image
    binds = (*binds_of(task.every_need), *site.binds)
    container = Container(image, site.runtime, site.gpu_support, binds, site.container_arguments)
    gpus = str(together) if site.gpu_type is None else f"{site.gpu_type}:{together}"
    argv = [
        "srun",
        f"--mpi={'none' if site.mpi == GLOO else site.mpi}",
        f"--kill-on-bad-exit={int(all_end)}",
        f"--nodes={task.nodes}",
        f"--ntasks={task.size // together}",
        f"--ntasks-per-node={task.ranks_per_node // together}",
        # since Slurm 22.05 a step no longer inherits it from its job
        f"--cpus-per-task={site.cpus_per_rank * together}",
        *([f"--gpus-per-task={gpus}"] if site.gpus == "gpus-per-task" else []),
        # NCCL fails between ranks that see one GPU each; ranks choose theirs by their local rank
        *(["--gpu-bind=none"] if _asks_by_task(site) else []),
        # stragglers are ended by the supervisor, which knows why, never by a site's default
        "--wait=0",
        # a site's profile may say otherwise, and ranks would lose what they find each other by
        "--export=ALL",
        "--unbuffered",
        "--input=none",
        "--open-mode=append",
        # srun replaces % in names of files by numbers of jobs, unless it is doubled
        f"--output={str(logs).replace('%', '%%')}/rank-%t.log",
        *site.srun,
        *container_argv(container),
        sys.executable if image == NO_IMAGE else IMAGE_PYTHON,
        *rank,
    ]
    return argv, _settings(task, meeting)


def _asks_by_task(site: Site) -> bool:
    """Whether the site's file or the job's variables ask for GPUs by task."""
    named = {**site.sbatch, **site.environment}.items()
    words = (site.gpus, *site.srun, *map("=".join, pairwise(site.srun)))
    words = (*words, *(f"{name}={value}" for name, value in named if value is not False))
    return any(map(_GPUS_OF_TASKS.search, words))


def _settings(task: Task, meeting: Path) -> dict[str, str]:
    site = task.site
    settings = {
        "PYTHONPATH": task.root,
        # Horovod's own stall inspector works under MPI only, where it warns; ours watches in any
        # case, and does not end ranks for what they were suspended
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "60",
    }
    if site.interface is not None:
        settings["HOROSCALE_INTERFACE"] = site.interface
        settings["NCCL_SOCKET_IFNAME"] = site.interface
    if site.scratch is not None:
        settings["TMPDIR"] = site.scratch
    if site.mpi == GLOO:
        return settings | {RENDEZVOUS: str(meeting)} | site.environment
    settings |= {"HOROVOD_CONTROLLER": "mpi", "PMIX_MCA_gds": "hash"}
    if task.image != NO_IMAGE:
        # ranks in user namespaces of their own cannot read each other's memory
        settings["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none"
        # the home folder's mca-params.conf is for another MPI than the image's
        settings["OMPI_MCA_mca_base_param_files"] = NOTHING
    if site.gpu_support == "none":
        settings |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib"}
    if site.interface is not None:
        settings["OMPI_MCA_btl_tcp_if_include"] = site.interface
        settings["OMPI_MCA_oob_tcp_if_include"] = site.interface
    return settings | site.environment
