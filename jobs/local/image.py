"""IMAGE= on this machine: ranks run inside a container image, as on a cluster, but without srun."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.cell.container import (
    IMAGE_PYTHON,
    NO_IMAGE,
    Container,
    Image,
    check_path,
    code_facts,
    container_argv,
)
from jobs.cell.image import BUILT, find_image, image_now
from jobs.config.site import Site
from train.errors import ConfigError
from train.run.provenance import git_state

START_S = 120.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NVIDIA = Path("/proc/driver/nvidia/gpus")


def gpus_here(environment: Mapping[str, str], driver: Path = _NVIDIA) -> int:
    """NVIDIA GPUs of this machine that ranks may see, counted without TensorFlow."""
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if shown is not None and shown.strip() in ("", "-1", "none", "NoDevFiles"):
        return 0  # hidden on purpose
    try:
        there = len(list(driver.iterdir()))
    except OSError:  # no driver, or one that tells nothing there (WSL)
        there = _listed()
    return there if shown is None else min(there, len(shown.split(",")))


def _listed() -> int:
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def container_here(
    name: str, gpus: int, root: Path, folders: Sequence[tuple[Path, str]]
) -> Container:
    """The container of a sweep's ranks on this machine.

    Args:
        name: as IMAGE= says it.
        gpus: that are seen here: of an image that is not ours, they decide what it gets.
        folders: what ranks read and write, and its name in messages.

    Raises:
        ConfigError: no such image, nothing that starts it, or a folder that cannot be bound.
    """
    if name == NO_IMAGE:
        raise ConfigError(
            "IMAGE=none found, expected cpu, gpu or the path of a SIF file; without IMAGE= ranks "
            "run in the environment of this checkout"
        )
    runtime = next((found for found in ("apptainer", "singularity") if shutil.which(found)), None)
    if runtime is None:
        raise ConfigError(
            f"IMAGE={name} needs apptainer (or singularity) on PATH: load its module, ask the "
            "administrators, or make image, which says how to get it; without IMAGE= ranks run in "
            "the environment of this checkout"
        )
    image = find_image(Site(ranks_per_node=1, image=name), root)
    for path, what in folders:
        check_path(path, what)
    nvidia = name == "gpu" or (name not in BUILT and gpus > 0)
    binds = tuple(str(path) for path, _ in folders)
    return Container(image.path, runtime, "nv" if nvidia else "none", binds, ())


def try_out(container: Container) -> None:
    """Start the image once, with all that is bound, before any cell depends on it.

    Raises:
        ConfigError: it does not start; with what was said.
    """
    argv = [*container_argv(container), IMAGE_PYTHON, "-c", "pass"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=START_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        said = "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
    except subprocess.TimeoutExpired:
        said = f"no end within {START_S:g} s"
    if not said:
        return
    todo = "try that line by hand; docs/images.md says what this machine needs"
    if os.geteuid() == 0:
        todo = "not every machine lets root start containers: make sweep as an ordinary user"
    raise ConfigError(
        f"the image does not start here: {shlex.join(argv)}\n  {_COLOUR.sub('', said).strip()}\n"
        f"  Nothing was run: {todo}"
    )


def facts_inside(container: Container, root: Path) -> dict[str, str]:
    """For the records of ranks that start in the container now.

    Raises:
        ConfigError: its image is gone, or is none any more.
    """
    digest = image_now(Image(container.image, None)).digest
    image = {"HOROSCALE_IMAGE_DIGEST": digest} if digest else {}
    return image | code_facts(*git_state(root))


def remark_on_gpus(
    gpus: int, container: Container | None, sweep: str, most: int, root: Path
) -> str | None:
    """What to say of GPUs that ranks will not use, or will look for in vain. ``most``: ranks of
    the sweep's largest cell, which need a GPU each."""
    computes = container is not None and container.gpu_support != "none"
    if computes and not gpus:
        return "no GPU is seen here: ranks compute on CPU cores"
    if computes or not gpus:
        return None
    built = (root / "containers" / "images" / "gpu.sif").exists()
    first = "" if built else "make image IMAGE=gpu && "
    file = shlex.quote(sweep) if most <= gpus else "COPY.yaml"
    # FORCE: cells that have run on CPU cores are else done
    use = f"{first}make sweep SWEEP={file} SITE=local IMAGE=gpu FORCE=1 uses them"
    if most > gpus:
        use += f", with a copy of this sweep's file whose gpus are at most {gpus} (here {most})"
    what, stay = ("GPU", "stays") if gpus == 1 else ("GPUs", "stay")
    return f"{gpus} {what} of this machine {stay} unused, ranks compute on CPU cores: {use}"


def check_gpus(container: Container, gpus: int, most: int, at_once: int) -> None:
    """NCCL refuses two ranks on one GPU, and two cells on one would slow each other down.

    ``most``: ranks of the largest cell; ``at_once``: cells that may run beside each other.

    Raises:
        ConfigError: fewer GPUs are seen than ranks, or several cells would share them.
    """
    if container.gpu_support == "none" or not gpus:
        return
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
