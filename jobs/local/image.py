"""IMAGE= on this machine: ranks run inside a container image, as on a cluster, but without srun."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.cell.container import (
    BUILT,
    IMAGE_PYTHON,
    NO_IMAGE,
    Container,
    container_argv,
    find_image,
)
from jobs.cell.needs import Need, binds_of, check_names
from jobs.config.sweep import Sweep
from jobs.messages import ROOT, say
from train.distributed.machine.gpus import IMAGE_CUDA, driver_cuda, unusable
from train.environment import environment_of
from train.errors import ConfigError, make_line

START_S = 120.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def gpus_here(environment: Mapping[str, str]) -> int:
    """NVIDIA GPUs of this machine that ranks may see, counted without TensorFlow."""
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if shown is not None and shown.strip() in ("", "-1", "none", "NoDevFiles"):
        return 0  # hidden on purpose
    there = sum(line.startswith("GPU ") for line in _nvidia_smi("-L").splitlines())
    return there if shown is None else min(there, len(shown.split(",")))


def _nvidia_smi(*options: str) -> str:
    """What it prints; nothing where there is none, or where it hangs."""
    argv = ["nvidia-smi", *options]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def container_here(name: str, gpus: int, needs: Sequence[Need]) -> Container:
    """The container of a sweep's ranks on this machine.

    Args:
        name: as IMAGE= says it.
        gpus: that are seen here: of an image that is not ours, they decide what it gets.
        needs: of the ranks.

    Raises:
        ConfigError: no such image, nothing that starts it, or a folder that cannot be bound.
    """
    without = "without IMAGE= ranks run in the environment of this checkout"
    if name == NO_IMAGE:
        raise ConfigError(
            f"IMAGE=none found, expected cpu, gpu or the path of a SIF file; {without}"
        )
    runtime = next((found for found in ("apptainer", "singularity") if shutil.which(found)), None)
    if runtime is None:
        raise ConfigError(
            f"IMAGE={name} needs apptainer (or singularity) on PATH: load its module, ask the "
            f"administrators, or make image, which says how to get it; {without}"
        )
    image = find_image(name, ROOT)
    check_names(needs, image.path)
    nvidia = name == "gpu" or (name not in BUILT and gpus > 0)
    return Container(image.path, runtime, "nv" if nvidia else "none", binds_of(needs), ())


def try_out(container: Container) -> Container:
    """Start the image once, with all that is bound, before any cell depends on it; returns how.

    Root that lacks a capability (as in many containers) starts it as other users do.

    Raises:
        ConfigError: it does not start; with what was said.
    """
    found = _complaint(container)
    if found and os.geteuid() == 0:
        apart = replace(container, arguments=("--userns", *container.arguments))
        if not _complaint(apart):
            return apart
    if found:
        line = shlex.join(_trial(container))
        todo = "try that line by hand; docs/images.md says what this machine needs"
        if os.geteuid() == 0:
            todo = "this machine does not let root start containers: make sweep as an ordinary user"
        raise ConfigError(
            f"the image does not start here: {line}\n  {found}\n  Nothing was run: {todo}"
        )
    return container


def _trial(container: Container) -> list[str]:
    return [*container_argv(container), IMAGE_PYTHON, "-c", "pass"]


def _complaint(container: Container) -> str:
    """What is said where the image does not start; else empty."""
    try:
        done = subprocess.run(
            _trial(container), capture_output=True, text=True, timeout=START_S, check=False,
            stdin=subprocess.DEVNULL, errors="replace", env=environment_of("ranks", os.environ),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end within {START_S:g} s"
    if done.returncode == 0:
        return ""
    return _COLOUR.sub("", done.stderr).strip() or f"exit code {done.returncode}"


def check_gpu_models(image: str, environment: Mapping[str, str]) -> None:
    """
    Raises:
        ConfigError: the suite's GPU image cannot use a GPU or the driver of this machine.
    """
    if image != "gpu" or not gpus_here(environment):
        return
    reason, driver = _unusable_gpu(environment), driver_cuda()
    if driver and driver[0] < int(IMAGE_CUDA.partition(".")[0]):
        reason = f"the driver is for CUDA {driver[0]}.{driver[1]}, the image for {IMAGE_CUDA}"
    if reason:
        raise ConfigError(
            f"IMAGE=gpu cannot run here: {reason}; hide that GPU (CUDA_VISIBLE_DEVICES) or use "
            "IMAGE=cpu"
        )


def _unusable_gpu(environment: Mapping[str, str]) -> str | None:
    """None, too, where nvidia-smi does not know, or not which GPUs CUDA_VISIBLE_DEVICES leaves."""
    answer = _nvidia_smi("--query-gpu=uuid,name,compute_cap", "--format=csv,noheader")
    rows = re.findall(r"(?m)^(\S+), (.+), (\d+)\.(\d+)$", answer)
    shown = environment.get("CUDA_VISIBLE_DEVICES", "GPU-").split(",")
    if all(word.startswith("GPU-") for word in shown):  # may be shortened
        rows = [row for row in rows if row[0].startswith(tuple(shown))]
        return next(filter(None, map(_reason, rows)), None)
    # CUDA numbers the fastest first, nvidia-smi by bus
    reasons = [_reason(row) for row in rows]
    return reasons[0] if reasons and all(reasons) else None


def _reason(row: tuple[str, str, str, str]) -> str | None:
    _, name, major, minor = row
    return unusable(name, (int(major), int(minor)), IMAGE_CUDA)


def remark_on_gpus(wanted: Sweep, container: Container | None, gpus: int) -> None:
    """Say which of the GPUs seen here ranks will not use, or that they will look for some in vain.
    Each rank needs one."""
    used = container is not None and container.gpu_support != "none"
    if used and not gpus:
        say("no GPU is seen here: ranks compute on CPU cores")
    if gpus and not used:
        # FORCE: cells that have run on CPU cores are else done
        line = make_line("sweep", SWEEP=wanted.asked, SITE="local", IMAGE="gpu", FORCE="1")
        say(
            f"GPUs of this machine that stay unused: {gpus}, ranks compute on CPU cores: "
            f"make image IMAGE=gpu && {line} uses them, where no cell of the sweep's file has more "
            f"than {gpus} gpus"
        )


def check_gpus(wanted: Sweep, container: Container, gpus: int, at_once: int) -> None:
    """NCCL refuses two ranks on one GPU, and two cells on one would slow each other down.

    ``at_once``: cells that may run beside each other.

    Raises:
        ConfigError: fewer GPUs are seen than ranks, or several cells would share them.
    """
    if container.gpu_support == "none" or not gpus:
        return
    most = max(config.gpus for config in wanted.configs)
    if most > gpus:
        raise ConfigError(
            f"a cell of {most} ranks found, expected at most {gpus}, one for each GPU that is seen "
            "here: leave larger counts out of the sweep (a copy of its file with fewer gpus), or "
            "use IMAGE=cpu"
        )
    if at_once > 1:
        raise ConfigError(
            f"JOBS={at_once} found, expected JOBS=1: cells that run at once would share the GPUs"
        )
