"""The container that ranks run in, as values: the same on a cluster and on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from train.config.frozen import Frozen
from train.errors import ConfigError

#: The image's own Python; without a container it is the one that runs the supervisor.
IMAGE_PYTHON = "python3"
NO_IMAGE = "none"


class FileMark(Frozen):
    """What tells a file from another under the same name, or from its own later content.

    The time of the last change of the inode, too: cp -p, mv and touch -d bring an older time of the
    content along, and none of them can set this one.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True)
class Image:
    """What ranks run in, and which content of it was there when it was looked at."""

    path: str  # of a SIF file or a folder, or NO_IMAGE
    digest: str | None  # sha256 of the file
    mark: FileMark | None = None  # of the file that has this digest


@dataclass(frozen=True)
class Container:
    """The image that ranks run in, and what of the host they see there."""

    image: str  # path of a SIF file, or NO_IMAGE
    runtime: str
    gpu_support: str
    binds: tuple[str, ...]  # SRC[:DEST[:OPTIONS]]
    arguments: tuple[str, ...]


def container_argv(container: Container) -> list[str]:
    """Tokens before the rank's own command; empty without an image.

    Never --cleanenv, --containall or --pid of our own: these drop what ranks find each other by.
    """
    if container.image == NO_IMAGE:
        return []
    argv = [container.runtime, "exec"]
    if container.gpu_support != "none":
        argv.append(f"--{container.gpu_support}")
    for bind in dict.fromkeys(container.binds):
        argv += ["--bind", bind]
    return [*argv, *container.arguments, container.image]


def code_facts(commit: str | None, dirty: bool | None) -> dict[str, str]:
    """What a rank cannot find out inside a container, which may have no git: which code it runs."""
    if not commit:
        return {"HOROSCALE_GIT_COMMIT": ""}  # not known, and not that of a checkout around it
    return {"HOROSCALE_GIT_COMMIT": commit, "HOROSCALE_GIT_DIRTY": "1" if dirty else "0"}


#: Signs that one of the readers of a path cannot be told as themselves, and who that is; tried with
#: Slurm 22.05 and Apptainer 1.4, where every other printable sign arrived whole.
_REFUSED = {
    "\\": "sbatch drops it",
    "%": "sbatch and srun replace it by numbers of jobs",
    ",": "apptainer's --bind ends there",
    "^": "apptainer's --bind ends there",
    ":": "apptainer's --bind and PYTHONPATH end there",
}


def check_path(path: Path, what: str) -> None:
    """Paths that go into the script and the container: the checkout, results, data.

    Spaces and quotes are fine.

    Raises:
        ConfigError: a sign that sbatch, srun or apptainer cannot be told as itself.
    """
    text = str(path)
    for sign in text:
        if sign in _REFUSED:
            raise ConfigError(
                f"{what} has {sign!r} in its path, {text!r}: {_REFUSED[sign]}. "
                "Use a folder without it"
            )
        if not sign.isprintable():
            raise ConfigError(
                f"{what} has the sign {sign!r} in its path, {text!r}, which a batch script cannot "
                "hold: use a folder without it"
            )
