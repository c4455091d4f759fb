"""Where a number comes from: the world of ranks, the commit and whether the checkout differs from
it, versions, hardware, and an allow-listed environment.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from train.config.run import RunConfig
from train.distributed.interfaces import machine
from train.distributed.machine.libraries import mpi_versions
from train.distributed.machine.quota import quotas_here
from train.distributed.world import Runtime, share_cores
from train.errors import text_of
from train.program.environment import environment_of
from train.record.run import DataPlane, Provenance, World

PACKAGES = (
    "tensorflow-cpu", "tensorflow", "keras", "horovod", "tensorflow-addons", "numpy", "pydantic",
)  # fmt: skip
# names, never patterns: an environment holds tokens
ENVIRONMENT = (
    "OMP_NUM_THREADS", "TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "CUDA_VISIBLE_DEVICES",
    "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS", "HOROVOD_GLOO_IFACE", "HOROVOD_CYCLE_TIME",
    "HOROVOD_FUSION_THRESHOLD", "HOROVOD_DISABLE_GROUP_FUSION", "HOROVOD_CACHE_CAPACITY",
    "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_P2P_DISABLE", "SLURM_JOB_PARTITION",
    "SLURM_JOB_NUM_NODES", "SLURM_CPUS_PER_TASK",
    "SLURM_JOB_NODELIST", "SLURM_RESTART_COUNT", "HOROSCALE_INTERFACE",
    "OMPI_MCA_btl_tcp_if_include", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER",
)  # fmt: skip

#: What decides a result: the code, its locks and the rows of techniques.
CODE = ("train", "jobs", "containers", "pyproject.toml")
NEW_CODE = ("train/", "jobs/")  # folders whose new Python files do so, too


def provenance_here(config: RunConfig, gpus: Sequence[str], *, asks_git: bool = True) -> Provenance:
    """Of this process. ``gpus``: models of those that it uses. ``asks_git``: one rank of each node
    is enough."""
    commit, dirty = git_state(Path(__file__).resolve().parents[2]) if asks_git else (None, None)
    return Provenance(
        git_commit=commit,
        git_dirty=dirty,
        image_digest=os.environ.get("HOROSCALE_IMAGE_DIGEST"),  # the supervisor's, outside of it
        versions=_versions(),
        cpu=_cpu(),
        gpu=gpus[0] if gpus else None,
        driver=text_of(Path("/proc/driver/nvidia/version")).partition("\n")[0].strip() or None,
        kernel=platform.release(),
        # the supervisor counts those of this machine
        unused_gpus=None if gpus else int(os.environ.get("HOROSCALE_GPUS_HERE") or 0) or None,
        slurm_job_id=slurm_job_id(os.environ),
        # weights and data order use the run's seed, random layers a stream per rank
        seeds={"run": config.seed},
        environment={name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    )


def slurm_job_id(environment: Mapping[str, str]) -> str | None:
    """As people and squeue write it: an element of an array is ARRAY_INDEX. None outside of a node
    of a job: a shell of salloc on a login node has the other variables, too."""
    if "SLURMD_NODENAME" not in environment:
        return None
    array, index = (environment.get(f"SLURM_ARRAY_{name}_ID") for name in ("JOB", "TASK"))
    return f"{array}_{index}" if array and index else environment.get("SLURM_JOB_ID")


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    from train.distributed.communicator import patches  # noqa: PLC0415  (not on a login node)

    if applied := patches():
        found["horovod"] += f", patched: {', '.join(applied)}"
    return found | mpi_versions()


def _cpu() -> str:
    model = re.search(r"(?m)^model name\s*:(.*)$", text_of(Path("/proc/cpuinfo")))
    return model[1].strip() if model else platform.machine()


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit, and whether the code differs from it; in a container as the supervisor says.

    A new sweep file or a note next to the code changes no result: a record holds its whole config.
    """
    commit = os.environ.get("HOROSCALE_GIT_COMMIT")
    if commit is not None:
        return commit or None, os.environ.get("HOROSCALE_GIT_DIRTY") == "1" if commit else None
    try:
        # of a repository that the folder only lies in, as a release that was unpacked in another
        # project, the commit says nothing; nor does that of one that does not have our code
        prefix, commit, _ = _git(
            folder, "rev-parse", "--show-prefix", "HEAD", ":train/__main__.py"
        ).split("\n")
        if prefix:
            return None, None
        status = ["status", "--porcelain", "-z", "--untracked-files=all", "--", *CODE]
        return commit, any(map(_decides, _git(folder, *status).split("\0")))
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None, None


def _decides(entry: str) -> bool:
    """Whether a file that git status reports, in its short format, changes results."""
    untracked = entry.startswith("?? ")
    return entry.endswith(".py") and entry[3:].startswith(NEW_CODE) if untracked else bool(entry)


def _git(folder: Path, *arguments: str) -> str:
    # a checkout of another user (a course's, a colleague's) is fine: its code is running already
    settings = ["-c", f"safe.directory={folder}"]
    settings += ["-c", "core.excludesFile="]  # that of the home folder hides files
    done = subprocess.run(
        ["git", "--no-optional-locks", *settings, "-C", str(folder), *arguments],
        capture_output=True, text=True, errors="replace", check=True,
        env=environment_of("git", os.environ),
    )  # fmt: skip
    return done.stdout.removesuffix("\n")


def describe_world(runtime: Runtime, own: Provenance) -> tuple[World, Provenance]:
    """The world, and rank 0's provenance with what is not equal on all ranks. Collective."""
    from train.distributed.communicator import built_for  # noqa: PLC0415

    mine = (
        socket.gethostname(), machine(), runtime.cores.own, quotas_here(), runtime.shares(),
        runtime.gpus, own,
    )  # fmt: skip
    them = zip(*runtime.ranks.allgather(mine), strict=True)
    hosts, machines, cores, quotas, shared, gpus, provenances = them
    # git has answered the first rank of each node alone
    git = [one.model_dump(include={"git_commit", "git_dirty"}) for one in provenances]
    provenances = tuple(
        one.model_copy(update=git[hosts.index(host)])
        for one, host in zip(provenances, hosts, strict=True)
    )
    # one per rank, of which a process of tf.distribute may have several
    ranks = [
        (host, _facts(of) | {"gpu": gpu or "none"})
        for host, of, models in zip(hosts, provenances, gpus, strict=True)
        for gpu in models or (None,) * runtime.replicas
    ]
    nodes, fewest = len(set(hosts)), min(map(len, cores))
    each = max(1, fewest // runtime.replicas)
    kind: Literal["cpu", "gpu"] = "gpu" if any(gpus) else "cpu"
    models = Counter(facts[kind] for _, facts in ranks)
    # in an order that no placement of ranks changes
    named = ((f"{n} x " if len(models) > 1 else "") + name for name, n in sorted(models.items()))
    device = ", ".join(named)
    too_few = fewest < runtime.replicas or share_cores(machines, cores, quotas)
    with_mpi, with_nccl = built_for()
    by_mpi = with_mpi and os.environ.get("HOROVOD_CONTROLLER") != "gloo"
    data_plane, interface = _data_way(runtime, nodes, by_mpi=by_mpi, with_nccl=with_nccl)
    world = World(
        size=len(ranks),
        nodes=nodes,
        hostnames=tuple(host for host, _ in ranks),
        device_kind=kind,
        device=device if any(gpus) else f"{device}, {each} core{'s' * (each != 1)} per rank",
        cores_per_rank=each,
        oversubscribed=any(shared) or (too_few and not any(gpus)),
        launcher=runtime.launcher,
        controller="mpi" if by_mpi else "gloo",
        data_plane=data_plane,
        interface=interface,
    )
    differing = unequal([facts for _, facts in ranks])
    return world, provenances[0].model_copy(update={"unequal": differing})


def _facts(of: Provenance) -> dict[str, str]:
    """What is expected to be equal on all ranks."""
    names = ("git_commit", "git_dirty", "image_digest", "cpu", "driver", "kernel")
    single = {name: str(getattr(of, name)) for name in names}
    return single | {f"versions.{name}": text for name, text in of.versions.items()}


def unequal(facts: Sequence[Mapping[str, str]]) -> dict[str, dict[str, tuple[int, ...]]]:
    """Of one mapping per rank, each fact with several values: value -> ranks that have it."""
    values_of: dict[str, dict[str, tuple[int, ...]]] = {name: {} for of in facts for name in of}
    for rank, of in enumerate(facts):
        for name, values in values_of.items():
            value = of.get(name, "none")
            values[value] = (*values.get(value, ()), rank)
    return {name: values for name, values in values_of.items() if len(values) > 1}


def _data_way(
    runtime: Runtime, nodes: int, *, by_mpi: bool, with_nccl: bool
) -> tuple[DataPlane, str | None]:
    if runtime.strategy is not None:
        return "tf.distribute", runtime.interface if runtime.size > 1 else None
    interface = None if by_mpi or runtime.size == 1 else os.environ.get("HOROVOD_GLOO_IFACE")
    if runtime.gpus and with_nccl:
        # the controller's interface is not NCCL's; on one node there is no other
        return "nccl", interface if nodes == 1 else None
    gloo = os.environ.get("HOROVOD_CPU_OPERATIONS") == "gloo" or not by_mpi
    return "gloo" if gloo else "mpi", interface
