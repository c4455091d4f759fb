"""Which GPUs and drivers the programs of an image can use, as nvidia-smi describes them here."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

QUERY = ("nvidia-smi", "--query-gpu=index,uuid,name,compute_cap,driver_version",
         "--format=csv,noheader")  # fmt: skip
#: Of the suite's image (containers/gpu.def): TensorFlow's CUDA, and what Horovod is compiled for.
IMAGE_CUDA = "12.2"
_OLDEST = (7, 0)
#: First CUDA whose compiler and libraries know compute capability 10.0.
_KNOWS_10 = (12, 8)
#: First driver of each major version of CUDA (CUDA's release notes, minor version compatibility).
_FIRST_DRIVER = {11: 450, 12: 525, 13: 580}


class Gpu(NamedTuple):
    """capability: compute capability, None where the driver is too old to tell. driver: its
    version."""

    name: str
    capability: tuple[int, int] | None
    driver: str


def gpus_described(environment: Mapping[str, str]) -> tuple[Gpu, ...]:
    """GPUs that CUDA_VISIBLE_DEVICES leaves; none where nvidia-smi does not describe any."""
    try:
        done = subprocess.run(
            list(QUERY), capture_output=True, text=True, errors="replace", timeout=20, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines()]
    rows = [row for row in rows if len(row) == 5]
    shown = (environment.get("CUDA_VISIBLE_DEVICES") or "").split(",")
    visible = [row for row in rows if {row[0], row[1]} & set(shown)]
    return tuple(Gpu(row[2], _capability(row[3]), row[4]) for row in visible or rows)


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def unusable(gpus: Sequence[Gpu], cuda: str) -> str | None:
    """In one sentence, why programs built for this CUDA cannot use one of these GPUs.

    Args:
        cuda: its version; the lower limit is known of the suite's own image alone.
    """
    major, minor = (int(part) for part in cuda.split(".")[:2])
    for gpu in gpus:
        if gpu.capability is None:
            continue
        what = f"{gpu.name} has compute capability {gpu.capability[0]}.{gpu.capability[1]}"
        if gpu.capability >= (10, 0) and (major, minor) < _KNOWS_10:
            return f"{what}, which CUDA {cuda} of the image does not know: up to 9.x run"
        if gpu.capability < _OLDEST and cuda == IMAGE_CUDA:
            return f"{what}, for which the image is not compiled: 7.0 to 9.x run"
    first = _FIRST_DRIVER.get(major)
    for gpu in gpus:
        version = gpu.driver.partition(".")[0]
        if first and version.isdecimal() and int(version) < first:
            return (
                f"driver {gpu.driver} of {gpu.name} is too old for CUDA {cuda} of the image: "
                f"{first} or later is needed"
            )
    return None
