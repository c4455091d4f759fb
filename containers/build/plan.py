"""What an image is made of: its definition, packages and the keys under which parts are reused.

All of it is text and pure functions. A key hashes everything that can change what it names, and
nothing else: the git commit is a label of an image, but no reason to build it again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from horovod_build import patches
from locks import LOCKS, SetupError, lock_file

RECIPES = LOCKS / "recipes"
IMAGES = ("cpu", "gpu")
SUITE = "bookworm"
#: Free bytes that building needs: unpacked tree, image, downloads, with room to spare.
NEEDED_BYTES = {"cpu": 6 * 1024**3, "gpu": 30 * 1024**3}
#: The form that every Singularity can mount, pressed less hard than by default.
SQUASH = "-comp gzip -Xcompression-level 3"
#: Packages that the GPU image has instead of those of ranks.lock.
CPU_ONLY = ("tensorflow-cpu",)


@dataclass(frozen=True)
class Parts:
    """The text files that one image is made from."""

    name: str
    base: str  # definition of the base
    definition: str
    packages: str  # requirements with hashes, installed into the image
    horovod: str  # the same for Horovod's source
    build: str  # for what compiles Horovod
    cuda: str  # the same of the GPU image: what the CUDA compiler needs; else empty
    script: str  # image_build.sh
    compiling: str  # image_compile.sh
    patch: str  # of Horovod's source
    machine: str  # x86_64, ...


def entries(text: str) -> dict[str, str]:
    """The entries of a lock file by package: each with its hashes, without comments."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line[:1] == "#" or not line.strip() or line.lstrip()[:1] == "#":
            continue
        if line[:1] != " ":
            name = re.split(r"[=\[ ]", line, maxsplit=1)[0]
            found[name] = ""
        found[name] += line + "\n"
    return found


def joined(
    locked: Mapping[str, str], *, only: Iterable[str] | None = None, without: Iterable[str] = ()
) -> str:
    wanted = set(locked if only is None else only) - set(without)
    return "".join(entry for name, entry in sorted(locked.items()) if name in wanted)


def version(requirements: str, package: str) -> str:
    """The version that requirements pin for a package."""
    for name, entry in entries(requirements).items():
        if name == package:
            return entry.split("==")[1].split()[0]
    raise SetupError(f"The lock files do not pin {package}: run `make lock`")


def read_parts(name: str, machine: str) -> Parts:
    locked = {part: entries(lock_file(part).read_text()) for part in ("ranks", "build")}
    packages, cuda = locked["ranks"], ""
    if name == "gpu":
        packages = packages | entries(lock_file("gpu").read_text())
        cuda = joined(entries(lock_file("cuda").read_text()))
    return Parts(
        name=name,
        base=(RECIPES / "base.def").read_text(),
        definition="\n".join((RECIPES / file).read_text() for file in (f"{name}.def", "final.def")),
        packages=joined(packages, without=("horovod", *(CPU_ONLY if name == "gpu" else ()))),
        horovod=joined(locked["ranks"], only=("horovod",)),
        build=joined(locked["build"]),
        cuda=cuda,
        script=(RECIPES / "image_build.sh").read_text(),
        compiling=(RECIPES / "image_compile.sh").read_text(),
        patch="".join(path.read_text() for path in patches()),
        machine=machine,
    )


def stages(definition: str) -> dict[str, str]:
    """The stages of a definition file by name, each from its Bootstrap line on."""
    texts = re.split(r"(?m)^(?=Bootstrap:)", definition)[1:]
    found = {}
    for text in texts:
        named = re.search(r"(?m)^Stage: *(\S+)$", text)
        found[named.group(1) if named else ""] = text
    return found


def without_stage(definition: str, name: str) -> str:
    return "".join(text for stage, text in stages(definition).items() if stage != name)


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
    stage = without_comments(stages(parts.definition)["build"])
    pinned = [version(parts.packages, name) for name in (framework(parts), "numpy")]
    if parts.name == "gpu":
        pinned += [version(parts.packages, f"nvidia-{name}-cu12")
                   for name in ("cuda-runtime", "nccl")]  # fmt: skip
    compiling = without_comments(parts.compiling)
    return digest(base_key(parts), stage, compiling, parts.patch, parts.horovod, parts.build,
                  parts.cuda, *pinned)  # fmt: skip


def image_key(parts: Parts) -> str:
    final = without_comments(stages(parts.definition)["final"])
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


def sources_list(mirror: str, security: str | None) -> str:
    """apt's sources while building; the image keeps none."""
    lines = [f"deb {mirror} {SUITE} main", f"deb {mirror} {SUITE}-updates main"]
    if security is not None:
        lines.append(f"deb {security} {SUITE}-security main")
    return "\n".join(lines) + "\n"


def apt_configuration(settings: str, proxies: Mapping[str, str], *, ca: bool) -> str:
    """apt's configuration while building: this machine's own, its package cache outside."""
    lines = [
        settings.rstrip("\n"),
        'Dir::Etc::sourcelist "/mnt/sources.list";',
        'Dir::Etc::sourceparts "-";',
        'Dir::State::lists "/mnt/lists";',
        'Dir::Cache "/mnt/apt";',
        'APT::Keep-Downloaded-Packages "true";',
        'APT::Install-Recommends "false";',
        'Acquire::Languages "none";',
        'APT::Sandbox::User "root";',  # the only user that the build's namespace surely has
    ]
    lines += [
        f'Acquire::{scheme}::Proxy "{proxies[f"{scheme}_proxy"]}";'
        for scheme in ("http", "https") if f"{scheme}_proxy" in proxies
    ]  # fmt: skip
    if ca:
        lines.append('Acquire::https::CAInfo "/mnt/ca.crt";')
    return "\n".join(lines) + "\n"
