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
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobs.cell.container import NO_IMAGE, FileMark, check_path
from jobs.config.site import Site
from train.config.frozen import Frozen
from train.errors import ConfigError, remedy
from train.record.atomic import write_atomically

#: A file changed this recently may change once more within one tick of its file system's clock.
TICK_S = 2.0


class Digest(Frozen):
    """The sha256 of a file, and the file that it was read from."""

    sha256: str
    mark: FileMark


def digest_of(path: Path, known: Digest | None = None) -> Digest:
    """The file's digest: the known one where it is the same file, else the cached or computed one.

    One shared file system may have another device number on each node, and then the content
    decides. The cache is the user's own, and only files that nobody else can write are believed.

    Raises:
        OSError: the file cannot be read, or is written at this moment.
    """
    # a network file system asks its server again when a file is opened
    with path.open("rb") as file:
        mark = _mark(file)
        if known is not None and known.mark == mark:
            return known
        note = _cache() / f"{mark.device:x}-{mark.inode:x}.json"
        cached = _read(note)
        if cached is not None and cached.mark == mark:
            return cached
        found = Digest(sha256=hashlib.file_digest(file, "sha256").hexdigest(), mark=mark)
        if _mark(file) != mark:
            raise OSError(errno.EBUSY, "it is being written: wait for that to end", str(path))
    if time.time() - mark.ctime_ns / 1e9 > TICK_S:
        _write(note, found)
    return found


def _mark(file: IO[bytes]) -> FileMark:
    found = os.fstat(file.fileno())
    return FileMark(
        device=found.st_dev,
        inode=found.st_ino,
        size=found.st_size,
        mtime_ns=found.st_mtime_ns,
        ctime_ns=found.st_ctime_ns,
    )


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "horoscale" / "digests"


def _read(note: Path) -> Digest | None:
    """None where there is none, or one that another user could have written."""
    with contextlib.suppress(OSError, ValueError), note.open("rb") as file:
        found = os.fstat(file.fileno())
        others = stat.S_IWGRP | stat.S_IWOTH
        if found.st_uid == os.geteuid() and not found.st_mode & others:
            return Digest.model_validate_json(file.read())
    return None


def _write(note: Path, digest: Digest) -> None:
    with contextlib.suppress(OSError):  # it only saves time
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(note, digest.model_dump_json() + "\n", mode=0o600)


BUILT = ("cpu", "gpu")
#: A SIF file begins with a header of this size: a line that makes it executable, its mark, ...
HEAD_BYTES = 128
MAGIC = b"SIF_MAGIC"
#: ... and at its end where the data begin and how many bytes they are.
_DATA = struct.Struct("<2q")


@dataclass(frozen=True)
class Image:
    path: str  # or NO_IMAGE
    digest: str | None  # sha256 of the file
    mark: FileMark | None = None  # of the file that has this digest


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
    known = None
    if image.digest is not None and image.mark is not None:
        known = Digest(sha256=image.digest, mark=image.mark)
    return _checked(Path(image.path), "put it back, or name another in the site", known)


def _checked(path: Path, hint: str, known: Digest | None = None) -> Image:
    try:
        if path.is_dir():
            return Image(str(path), None)  # an unpacked image has no one digest
        with path.open("rb") as file:
            head, size = file.read(HEAD_BYTES), os.fstat(file.fileno()).st_size
        if MAGIC not in head:
            raise ConfigError(f"{path} is no SIF image (it begins with {head[:16]!r}): {hint}")
        whole = sum(_DATA.unpack(head[-_DATA.size :])) if len(head) == HEAD_BYTES else HEAD_BYTES
        if size < whole:
            raise ConfigError(
                f"the image {path} is cut off: {size:,} bytes found, {whole:,} expected by its own "
                f"header. Copy it again, or {hint}"
            )
        found = digest_of(path, known)
    except FileNotFoundError:
        raise ConfigError(f"there is no image {path}: {hint}") from None
    except OSError as error:
        raise ConfigError(
            f"the image {path} cannot be read ({error.strerror}): "
            + (f"{todo}, or {hint}" if (todo := remedy(error)) else hint)
        ) from error
    return Image(str(path), found.sha256, found.mark)
