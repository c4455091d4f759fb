"""Compressed files read safely: nothing is unpacked to disk, sizes are bounded, damage is told.

Members of a tar archive are handed out as bytes. A path that leaves the archive's folder, a link
or a device could do no harm that way; an archive with one is refused all the same, as it is not
what it claims to be.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

from train.errors import DataError

_DAMAGED = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, tarfile.TarError)
_READ = 1 << 20
_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ": lzma.open,
    b"BZh": bz2.open,
}


class _Bounded:
    """A readable stream that refuses to give more than ``limit`` bytes."""

    def __init__(self, stream: IO[bytes], limit: int, path: Path) -> None:
        self._stream, self._left, self._limit, self._path = stream, limit, limit, path

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise DataError(
                f"{self._path} unpacks to more than {self._limit:,} bytes, which no data set known "
                "here does; get the file anew from its publisher."
            )
        return data


@contextlib.contextmanager
def _unpacked(path: Path, limit: int) -> Iterator[_Bounded]:
    """The decompressed content (gzip, xz, bzip2 or none, by its first bytes).

    Raises:
        DataError: the file is truncated, damaged or too large.
    """
    with path.open("rb") as raw:
        head = raw.read(6)
        raw.seek(0)
        opener = next((o for magic, o in _OPENERS.items() if head.startswith(magic)), None)
        try:
            stream = cast("IO[bytes]", opener(raw) if opener else raw)
            yield _Bounded(stream, limit, path)
        except _DAMAGED as error:
            raise DataError(_damaged(path, error)) from error
        except OSError as error:
            if error.errno is None:  # bz2 tells damage so
                raise DataError(_damaged(path, error)) from error
            raise


def _damaged(path: Path, error: BaseException) -> str:
    return f"{path} is truncated or damaged ({error}); delete it and get it anew."


def read_unpacked(path: Path, limit: int) -> bytes:
    """The whole content of a file that may be compressed, at most ``limit`` bytes.

    Raises:
        DataError: the file is truncated, damaged or larger.
    """
    with _unpacked(path, limit) as stream:
        parts = []
        while part := stream.read(_READ):
            parts.append(part)
        return b"".join(parts)


def tar_files(path: Path, limit: int) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Name and content of each regular file of a tar archive, in the archive's order.

    Args:
        limit: bytes that the whole archive may unpack to.

    Raises:
        DataError: the archive is truncated, damaged or too large, or has a member that is neither
            a plain file nor a folder, or whose path is absolute or leaves the archive.
    """
    with _unpacked(path, limit) as stream:
        # "r|": strictly forward, so that a member is read once and no index is kept
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
            for member in archive:
                _refuse_unsafe(member, path, limit)
                if member.isreg():
                    content = archive.extractfile(member)
                    assert content is not None
                    yield PurePosixPath(member.name), content.read()
        while stream.read(_READ):  # to the end: only there does a checksum of the stream come
            pass


def _refuse_unsafe(member: tarfile.TarInfo, archive: Path, limit: int) -> None:
    name = PurePosixPath(member.name)
    reason = None
    if name.is_absolute() or ".." in name.parts or "\\" in member.name:
        reason = "its path leaves the archive's folder"
    elif member.issym() or member.islnk():
        reason = f"it is a link to {member.linkname!r}"
    elif member.issparse() or not (member.isreg() or member.isdir()):
        reason = "it is neither a plain file nor a folder"
    elif member.size > limit:
        reason = f"it claims {member.size:,} bytes"
    if reason:
        raise DataError(
            f"{archive} is refused: member {member.name!r}: {reason}. "
            "An archive of images has plain files and folders only."
        )
