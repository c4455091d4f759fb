"""The image that ranks run in: found, checked before anything is submitted, and once more before
ranks start from it; and its sha256, read once for as long as it is the same file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import struct
import time
from io import BufferedReader
from pathlib import Path

from jobs.cell.container import NO_IMAGE, FileMark, Image, check_path
from jobs.config.site import Site
from train.errors import ConfigError, remedy
from train.record.atomic import write_atomically

BUILT = ("cpu", "gpu")
#: A SIF file begins with a header of this size: a line that makes it executable, its mark, ...
HEAD_BYTES = 128
MAGIC = b"SIF_MAGIC"
#: ... and at its end where the data begin and how many bytes they are.
_DATA = struct.Struct("<2q")
#: A file changed this recently may change once more within one tick of its file system's clock.
TICK_S = 2.0


def find_image(site: Site, root: Path) -> Image:
    """The site's image and its digest.

    Raises:
        ConfigError: it is missing, cannot be read, or is no image.
    """
    if site.image == NO_IMAGE:
        return Image(NO_IMAGE, None)
    built = site.image in BUILT
    path = root / "containers" / "images" / f"{site.image}.sif" if built else Path(site.image)
    path = path.expanduser().absolute()
    hint = f"make image IMAGE={site.image}" if built else "name another with image: in the site"
    check_path(path, "the image")
    return _checked(path, hint)


def image_now(image: Image) -> Image:
    """The image as it is now, for the job that is about to start ranks from it: the file may have
    been replaced while the job waited.

    The ranks then run from the new one: their records carry its digest, and the report warns where
    runs from different images are compared. A queue that was waited for is not thrown away.

    Raises:
        ConfigError: as :func:`find_image`.
    """
    if image.path == NO_IMAGE:
        return image
    return _checked(Path(image.path), "put it back, or name another in the site", image)


def _checked(path: Path, hint: str, known: Image | None = None) -> Image:
    try:
        if path.is_dir():
            return Image(str(path), None)  # an unpacked image has no one digest
        # a network file system asks its server again when a file is opened
        with path.open("rb") as file:
            _check_head(path, file, hint)
            mark = _mark(file)
            if known is not None and known.mark == mark:
                return known
            return Image(str(path), digest_of(file, mark), mark)
    except FileNotFoundError:
        raise ConfigError(f"there is no image {path}: {hint}") from None
    except OSError as error:
        raise ConfigError(
            f"the image {path} cannot be read ({error.strerror}): "
            + (f"{todo}, or {hint}" if (todo := remedy(error)) else hint)
        ) from error


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


def _mark(file: BufferedReader) -> FileMark:
    status = os.fstat(file.fileno())
    return FileMark(
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
    )


def digest_of(file: BufferedReader, mark: FileMark) -> str:
    """The sha256 of the open file with this mark, computed or noted earlier.

    The notes are the user's own, one a mark. One shared file system may have another device number
    on each node, which then computes it.

    Raises:
        OSError: the file cannot be read, or is written at this moment.
    """
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = "-".join(f"{number:x}" for number in mark.model_dump().values())
    note = Path(root) / "horoscale" / "digests" / name
    if noted := _noted(note):
        return noted
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if _mark(file) != mark:
        raise OSError(errno.EBUSY, "it is being written: wait for that to end", file.name)
    if time.time() - mark.ctime_ns / 1e9 > TICK_S:
        with contextlib.suppress(OSError):  # it only saves time
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(note, digest, mode=0o600)
    return digest


def _noted(note: Path) -> str | None:
    """None where there is no digest, or another user could have written it."""
    with contextlib.suppress(OSError, ValueError), note.open(encoding="ascii") as file:
        status, text = os.fstat(file.fileno()), file.read()
        others = stat.S_IWGRP | stat.S_IWOTH
        if status.st_uid == os.geteuid() and not status.st_mode & others and len(text) == 64:
            return text
    return None
