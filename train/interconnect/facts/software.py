"""Versions of what carries the traffic, on the node itself; the image's are the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from train.interconnect.facts.probe import Answer, ask, fact, read
from train.interconnect.facts.record import Fact

#: Program -> what of its answer is the version.
_PROGRAMS = {
    ("ofed_info", "-s"): r"(\S+?):?$",
    ("ucx_info", "-v"): r"(?:Library version|UCT version=)\s*:?\s*(\S+)",
    ("fi_info", "--version"): r"libfabric: (\S+)",
    ("apptainer", "--version"): r"(\d\S+)",
    ("slurmd", "-V"): r"slurm\S* (\S+)",
}


def software(environment: Mapping[str, str], root: Path = Path("/")) -> Iterator[Fact]:
    for command, pattern in _PROGRAMS.items():
        yield fact("software", command[0], version(ask(command), pattern))
    driver = read(root / "proc/driver/nvidia/version")
    yield fact("software", "NVIDIA driver", version(driver, r"Kernel Module\D*(\d[\d.]+)"))
    digest = environment.get("HOROSCALE_IMAGE_DIGEST")
    yield fact("software", "image", Answer(digest, None if digest else "no image, or not told"))


def version(told: Answer, pattern: str) -> Answer:
    if told.text is None:
        return told
    found = re.search(pattern, told.text, re.MULTILINE)
    return Answer(found[1] if found else None, None if found else f"found {told.text[:80]!r}")
