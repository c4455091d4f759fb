"""The launch line of one cell on Slurm as values: srun, the container, the rank. Nothing runs here.

What each setting is for was found by running it (Slurm 22.05, Open MPI 4.1, Apptainer 1.4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.cell.container import MISLEADING, NO_IMAGE, Container, container_argv
from jobs.config.site import Site
from jobs.slurm.arrays import NodeLayout

GLOO = "gloo"


def step_argv(
    site: Site,
    shape: NodeLayout,
    container: Container,
    rank: Sequence[str],
    logs: Path,
    *,
    all_end: bool = True,
    together: int = 1,
) -> list[str]:
    """``srun`` with one task per rank; each rank's output goes into its own file in ``logs``.

    ``all_end``: one bad end ends the step at once, because its peers would wait for ever.
    ``together``: ranks that are one task, with the cores and GPUs of all of them.
    """
    return [
        "srun",
        f"--mpi={'none' if site.mpi == GLOO else site.mpi}",
        f"--kill-on-bad-exit={int(all_end)}",
        f"--nodes={shape.nodes}",
        f"--ntasks={shape.size // together}",
        f"--ntasks-per-node={shape.ranks_per_node // together}",
        # since Slurm 22.05 a step no longer inherits it from its job
        f"--cpus-per-task={site.cpus_per_rank * together}",
        *([f"--gpus-per-task={_gpus(site, together)}"] if site.gpus == "gpus-per-task" else []),
        # stragglers are ended by the supervisor, which knows why, never by a site's default
        "--wait=0",
        # a site's profile may say otherwise, and ranks would lose what they find each other by
        "--export=ALL",
        "--unbuffered",
        "--input=none",
        "--open-mode=append",
        f"--output={escaped(logs)}/rank-%t.log",
        *site.srun,
        *container_argv(container),
        *rank,
    ]


def _gpus(site: Site, count: int) -> str:
    return str(count) if site.gpu_type is None else f"{site.gpu_type}:{count}"


def escaped(path: Path) -> str:
    """srun replaces % in names of files by numbers of jobs, unless it is doubled."""
    return str(path).replace("%", "%%")


def rank_argv(
    python: str,
    cell: Path,
    *,
    data: str,
    store: str,
    attempt: int,
    stall_s: float,
    resume: bool,
    stop_at: float | None,
) -> list[str]:
    """The command of every rank. What must survive a cleaned environment is in here."""
    argv = [python, "-m", "train", str(cell / "config.json"), "--supervised"]
    argv += ["--data", data, "--store", store]
    argv += ["--attempt", str(attempt), "--stall-s", f"{stall_s:g}"]
    if stop_at is not None:
        argv += ["--stop-at", f"{stop_at:.0f}"]
    return [*argv, "--resume"] if resume else argv


def step_environment(
    site: Site, container: Container, *, root: Path, rendezvous: Path | None
) -> dict[str, str]:
    """What the ranks get on top of the batch job's environment.

    ``rendezvous``: file through which Gloo ranks meet; None under PMIx.
    """
    settings = {
        "PYTHONPATH": str(root),
        "PYTHONUNBUFFERED": "1",
        "PYTHONNOUSERSITE": "1",  # a package in a user's home would replace the image's
        # Horovod's own stall inspector works under MPI only, where it warns; ours watches in any
        # case, and does not end ranks for what they were suspended
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "60",
    }
    if site.interface is not None:
        settings["HOROSCALE_INTERFACE"] = site.interface
        settings["NCCL_SOCKET_IFNAME"] = site.interface
    if site.scratch is not None:
        settings["TMPDIR"] = site.scratch
    if rendezvous is not None:
        settings["HOROSCALE_RENDEZVOUS"] = str(rendezvous)
    else:
        settings |= _open_mpi(site, container)
    return settings | site.environment


def _open_mpi(site: Site, container: Container) -> dict[str, str]:
    settings = {"HOROVOD_CONTROLLER": "mpi", "PMIX_MCA_gds": "hash"}
    if container.image != NO_IMAGE:
        # ranks in user namespaces of their own cannot read each other's memory
        settings["OMPI_MCA_btl_vader_single_copy_mechanism"] = "none"
    if site.gpu_support == "none":
        settings |= {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "^openib"}
    if site.interface is not None:
        settings["OMPI_MCA_btl_tcp_if_include"] = site.interface
        settings["OMPI_MCA_oob_tcp_if_include"] = site.interface
    return settings


#: Variables of another launcher, or of whoever submitted, that a rank would believe.
_FOREIGN = (
    "HOROVOD_", "HOROSCALE_", "OMPI_", "PMIX_", "PMI_", "SUBMITIT_", "SBATCH_", "SRUN_",
    "SLURM_CPU_BIND", *MISLEADING,
)  # fmt: skip
_TUNING = frozenset({"HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CACHE_CAPACITY"})


def rank_base(environment: Mapping[str, str]) -> dict[str, str]:
    """The batch job's environment without what other launchers left in it; tuning knobs stay."""
    return {
        name: value
        for name, value in environment.items()
        if name in _TUNING or not name.startswith(_FOREIGN)
    }
