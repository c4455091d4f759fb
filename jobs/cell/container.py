"""The container that ranks run in: its image, checked before anything is submitted and once more
before ranks start from it, and what starts it; the same on a cluster and on this machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import struct
import time
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from train.errors import ConfigError, expanded, is_private, named_folder, remedy
from train.record.atomic import write_atomically

#: The image's own Python; without a container it is the one that runs the supervisor.
IMAGE_PYTHON = "python3"
NO_IMAGE = "none"
#: Images that make image builds, in the checkout.
BUILT = ("cpu", "gpu")
ANOTHER = "name another (IMAGE= on this machine, image: in the site file)"
#: A SIF file begins with a header of this size: a line that makes it executable, its mark, ...
HEAD_BYTES = 128
MAGIC = b"SIF_MAGIC"
#: ... and at its end where the data begin and how many bytes they are.
_DATA = struct.Struct("<2q")
#: A file changed this recently may change once more within one tick of its file system's clock.
TICK_S = 2.0
#: Signs that one of the readers of a path does not take as themselves, and who that is; tried with
#: Slurm 22.05 and Apptainer 1.4, where every other printable sign arrived whole.
_REFUSED = {
    "\\": "sbatch drops it",
    "%": "sbatch and srun replace it by numbers of jobs",
    ",": "apptainer's --bind ends there",
    "^": "apptainer's --bind ends there",
    ":": "apptainer's --bind and PYTHONPATH end there",
}


#: Inode, size, and times of the last change of the content and of the inode, in ns: what tells a
#: file from another under the same name, or from its own later content. cp -p, mv and touch -d set
#: the first time, and none of them the second.
FileMark = tuple[int, int, int, int]


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


def facts_inside(image: Image, commit: str | None, dirty: bool | None) -> dict[str, str]:
    """What a rank cannot find out inside a container, which may have no git: which code and which
    image it runs."""
    facts = {"HOROSCALE_IMAGE_DIGEST": image.digest} if image.digest else {}
    if not commit:
        # not known, and not that of a checkout around it
        return facts | {"HOROSCALE_GIT_COMMIT": ""}
    return facts | {"HOROSCALE_GIT_COMMIT": commit, "HOROSCALE_GIT_DIRTY": "1" if dirty else "0"}


def check_path(path: Path, what: str) -> None:
    """For paths that go into the batch script and the container. Spaces and quotes are fine.

    Raises:
        ConfigError: a sign that sbatch, srun or apptainer does not take as itself.
    """
    for sign in str(path):
        why = _REFUSED.get(sign) or ("" if sign.isprintable() else "a batch script cannot hold it")
        if why:
            raise ConfigError(
                f"{what} has {sign!r} in its path, {str(path)!r}: {why}. Use a folder without it"
            )


def find_image(name: str, root: Path) -> Image:
    """The image of this name, as a site or IMAGE= says it, and its digest.

    Raises:
        ConfigError: it is missing, cannot be read, or is no image.
    """
    if name == NO_IMAGE:
        return Image(NO_IMAGE, None)
    path = image_path(name, root)
    check_path(path, "the image")
    return _checked(path, f"make image IMAGE={name}" if name in BUILT else ANOTHER)


def image_path(name: str, root: Path) -> Path:
    """Where it is, or would be when it is built."""
    if name in BUILT:
        return root / "containers" / "images" / f"{name}.sif"
    return expanded(name).absolute()


def image_now(image: Image) -> Image:
    """The image as it is now, for ranks that are about to start from it: the file may have been
    replaced while the job waited.

    The ranks then run from the new one: their records carry its digest, and the report warns where
    runs from different images are compared. A queue that was waited for is not thrown away.

    Raises:
        ConfigError: as :func:`find_image`.
    """
    if image.path == NO_IMAGE:
        return image
    return _checked(Path(image.path), f"put it back, or {ANOTHER}", image)


def _checked(path: Path, hint: str, known: Image | None = None) -> Image:
    try:
        if path.is_dir():
            return Image(str(path), None)  # an unpacked image has no one digest
        # a network file system asks its server again when a file is opened
        with path.open("rb") as file:
            _check_head(path, file, hint)
            mark = mark_of(file)
            if known is not None and known.mark == mark:
                return known
            return Image(str(path), digest_of(file, mark), mark)
    except FileNotFoundError:
        raise ConfigError(f"there is no image {path}: {hint}") from None
    except OSError as error:
        todo = ", or ".join(filter(None, (remedy(error, path), hint)))
        raise ConfigError(f"the image {path} cannot be read ({error.strerror}): {todo}") from error


def _check_head(path: Path, file: BufferedReader, hint: str) -> None:
    head, size = file.read(HEAD_BYTES), os.fstat(file.fileno()).st_size
    if MAGIC not in head:
        raise ConfigError(f"{path} is no SIF image (it begins with {head[:16]!r}): {hint}")
    whole = sum(_DATA.unpack(head[-_DATA.size :])) if len(head) == HEAD_BYTES else HEAD_BYTES
    if size < whole:
        raise ConfigError(
            f"the image {path} is cut off: {size:,} bytes found, {whole:,} expected by its own "
            f"header. Copy it again, or {hint}"
        )


def mark_of(file: BufferedReader) -> FileMark:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def digest_of(file: BufferedReader, mark: FileMark) -> str:
    """The sha256 of the open file with this mark, computed or noted earlier in the user's cache.

    Raises:
        OSError: the file cannot be read, or is written at this moment.
    """
    root = named_folder("XDG_CACHE_HOME") or Path.home() / ".cache"
    note = root / "horoscale" / "digests" / "-".join(f"{number:x}" for number in mark)
    with contextlib.suppress(OSError, ValueError), note.open(encoding="ascii") as noted:
        text = noted.read()
        if is_private(noted.fileno()) and re.fullmatch("[0-9a-f]{64}", text):
            return text
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if mark_of(file) != mark:
        raise OSError(errno.EBUSY, "it is being written: wait for that to end", file.name)
    if time.time() - mark[-1] / 1e9 > TICK_S:
        with contextlib.suppress(OSError):  # it only saves time
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(note, digest, mode=0o600)
    return digest
