"""The sha256 of an image, read once for as long as it is the same file: images are gigabytes."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import IO

from train.config.frozen import Frozen
from train.record.atomic import write_atomically

#: A file changed this recently may change once more within one tick of its file system's clock.
TICK_S = 2.0


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
