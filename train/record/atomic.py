"""Files that are whole or absent: write under a temporary name, flush to disk, rename.

The umask and the folder (its group, its default ACL) decide about modes when a file is created.
None is set later, which some file systems refuse (CIFS, FUSE).
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

#: What a file system answers that cannot flush a file at a program's request.
_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def write_atomically(path: Path, content: str | bytes | memoryview, *, mode: int = 0o666) -> None:
    """Replace a file so that a reader sees the old one or the new one, never a half.

    ``mode``: what the umask takes from; 0o600 for what may hold a secret.

    Raises:
        OSError: the disk is full or the folder not writable; the old file is then untouched and
            nothing is left under a temporary name.
    """
    with _temporary(path, content, mode) as temporary:
        temporary.replace(path)
    _sync_folder(path.parent)


def write_new(path: Path, text: str) -> bool:
    """Write the file, whole, unless there is one; False when there is. The file server decides: the
    cache of a network file system may deny for a minute that another machine has written the file.
    Raises OSError as :func:`write_atomically`."""
    with _temporary(path, text) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:  # a file system without hard links: the list is fresher than a name's cache
            if path in path.parent.iterdir():
                return False
            temporary.replace(path)
    _sync_folder(path.parent)
    return True


@contextlib.contextmanager
def _temporary(path: Path, content: str | bytes | memoryview, mode: int = 0o666) -> Iterator[Path]:
    """The content on disk, beside ``path``, for as long as nobody gives it another name."""
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}.tmp"
    try:
        with _named(path), os.fdopen(create(temporary, mode), "wb") as out:
            out.write(content.encode("utf-8") if isinstance(content, str) else content)
            flush_to_disk(out)
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def leftovers(folder: Path) -> list[Path]:
    """Files under the temporary names of writers here that were killed, or still write."""
    files = folder.glob(f".*.{'[0-9a-f]' * 12}.tmp")
    return [file for file in files if file.is_file()]


def create(path: Path, mode: int = 0o666) -> int:
    """Create a file and open it for writing; the umask and the folder decide about ``mode``. Raises
    OSError also where something has that name, even a link."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def flush_to_disk(file: IO[Any]) -> None:
    """As os.fsync. A file system that has no such thing keeps what was written all the same."""
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """A full disk does not say which file it has no room for."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def forget_absent(folder: Path) -> None:
    """Make a network file system look again for names in a folder. NFS holds them for absent while
    the folder seems unchanged, up to a minute (acdirmax): a change of our own makes it ask."""
    with contextlib.suppress(OSError), tempfile.NamedTemporaryFile(dir=folder, prefix="."):
        pass


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that lines of one writer are never interleaved or torn, and
    flush it to disk."""
    with _named(path), path.open("a", encoding="utf-8") as out:
        out.write(line.rstrip("\n") + "\n")
        flush_to_disk(out)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; some network file systems refuse this, and that is fine."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
