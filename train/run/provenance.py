"""Where a number comes from: the commit and whether the checkout differs from it, versions,
hardware, and an allow-listed environment.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from train.config.run import RunConfig
from train.distributed.machine.libraries import mpi_versions
from train.errors import text_of
from train.program.environment import environment_of
from train.record.run import Provenance

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


def collect(config: RunConfig, gpus: Sequence[str], *, asks_git: bool = True) -> Provenance:
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
