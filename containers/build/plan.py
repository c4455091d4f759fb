"""What an image is made of: its definition, packages and the keys under which parts are reused.

All of it is text and pure functions. A key hashes everything that can change what it names, and
nothing else: the git commit is a label of an image, but no reason to build it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from horovod_build import patches
from locks import LOCKS, entries, joined, lock_file, only_horovod, version

RECIPES = LOCKS / "recipes"
IMAGES = ("cpu", "gpu")
#: Free bytes that building needs: unpacked tree, image, downloads, with room to spare.
NEEDED_BYTES = {"cpu": 6 * 1024**3, "gpu": 30 * 1024**3}
#: The form that every Singularity can mount, pressed less hard than by default.
SQUASH = "-comp gzip -Xcompression-level 3"


@dataclass(frozen=True)
class Parts:
    """The text files that one image is made from."""

    name: str
    base: str  # definition of the base
    compile: str  # definition of the stage that compiles Horovod
    final: str  # definition of the last stage
    packages: str  # requirements with hashes, installed into the image
    horovod: str  # the same for Horovod's source
    build: str  # for what compiles Horovod
    cuda: str  # the same of the GPU image: what the CUDA compiler needs; else empty
    script: str  # image_build.sh
    compiling: str  # image_compile.sh
    patch: str  # of Horovod's source
    machine: str  # x86_64, ...


def read_parts(name: str, machine: str) -> Parts:
    locked = {part: entries(lock_file(part).read_text()) for part in ("ranks", "build")}
    packages, cuda = locked["ranks"], ""
    if name == "gpu":
        packages = packages | entries(lock_file("gpu").read_text())
        cuda = joined(entries(lock_file("cuda").read_text()))
    return Parts(
        name=name,
        base=(RECIPES / "base.def").read_text(),
        compile=(RECIPES / f"{name}.def").read_text(),
        final=(RECIPES / "final.def").read_text(),
        packages=joined(packages, "horovod", *(["tensorflow-cpu"] if name == "gpu" else [])),
        horovod=only_horovod(),
        build=joined(locked["build"]),
        cuda=cuda,
        script=(RECIPES / "image_build.sh").read_text(),
        compiling=(RECIPES / "image_compile.sh").read_text(),
        patch="".join(path.read_text() for path in patches()),
        machine=machine,
    )


def digest(*texts: str) -> str:
    """16 hex digits over texts, lengths included, so that no two lists of texts are alike."""
    whole = hashlib.sha256()
    for text in texts:
        whole.update(f"{len(text)}\n{text}".encode())
    return whole.hexdigest()[:16]


def without_comments(definition: str) -> str:
    return "\n".join(line for line in definition.splitlines() if line.strip()[:1] not in ("#", ""))


def base_key(parts: Parts) -> str:
    return digest(without_comments(parts.base), parts.machine)


def framework(parts: Parts) -> str:
    return "tensorflow" if parts.name == "gpu" else "tensorflow-cpu"


def wheel_key(parts: Parts) -> str:
    """Of the Horovod wheel: the stage that compiles it and all that goes into that stage."""
    stage = without_comments(parts.compile)
    pinned = [version(parts.packages, name) for name in (framework(parts), "numpy")]
    if parts.name == "gpu":
        pinned += [version(parts.packages, f"nvidia-{name}-cu12")
                   for name in ("cuda-runtime", "nccl")]  # fmt: skip
    compiling = without_comments(parts.compiling)
    return digest(base_key(parts), stage, compiling, parts.patch, parts.horovod, parts.build,
                  parts.cuda, *pinned)  # fmt: skip


def image_key(parts: Parts) -> str:
    final = without_comments(parts.final)
    script = without_comments(parts.script)
    return digest(base_key(parts), wheel_key(parts), final, script, parts.packages)


def lock_hash(parts: Parts) -> str:
    """sha256 over all requirements of the image: what its label horoscale.lock says."""
    return hashlib.sha256((parts.packages + parts.horovod).encode()).hexdigest()


def build_arguments(parts: Parts, base: Path, wheel: str, commit: str) -> dict[str, str]:
    """The values in braces of the definition."""
    return {
        "name": parts.name,
        "base": str(base),
        "wheel": wheel,  # folder as seen by the build
        "commit": commit,
        "key": image_key(parts),
        "lock": lock_hash(parts),
        "tensorflow": version(parts.packages, framework(parts)),
        "horovod": version(parts.horovod, "horovod"),
    }


def build_command(
    apptainer: str, inputs: Path, arguments: Mapping[str, str], image: Path, definition: Path
) -> list[str]:
    values = [token for key, value in sorted(arguments.items())
              for token in ("--build-arg", f"{key}={value}")]  # fmt: skip
    return [apptainer, "build", "--force", "--mksquashfs-args", SQUASH, "--bind",
            f"{inputs}:/mnt", *values, str(image), str(definition)]  # fmt: skip
