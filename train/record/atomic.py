"""Files that are whole or absent: write under a temporary name, flush to disk, rename."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, *, mode: int = 0o644) -> None:
    """Replace a file so that a reader sees the old one or the new one, never a half.

    Raises:
        OSError: the disk is full or the folder not writable; the old file is then untouched and
            nothing is left under a temporary name.
    """
    with _temporary(path, content, mode) as temporary:
        temporary.replace(path)
    _sync_folder(path.parent)


def write_new(path: Path, text: str) -> bool:
    """Write the file, whole, unless there is one; False when there is.

    The file server decides, and not what this machine remembers of the folder: the cache of a
    network file system may deny for a minute that another machine has written the file.

    Raises:
        OSError: as :func:`write_atomically`.
    """
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
def _temporary(path: Path, content: str | bytes, mode: int = 0o644) -> Iterator[Path]:
    """The content on disk, beside ``path``, for as long as nobody gives it another name."""
    with _named(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with _named(path), os.fdopen(handle, "wb") as out:
            out.write(content.encode("utf-8") if isinstance(content, str) else content)
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(mode)
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """A full disk does not say which file it has no room for."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def forget_absent(folder: Path) -> None:
    """Make a network file system look again for the names in a folder that it holds for absent.

    NFS keeps such answers for as long as the folder seems unchanged, up to a minute (acdirmax);
    a change of our own makes it ask the server.
    """
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(prefix=".look.", suffix=".tmp", dir=folder)
        os.close(handle)
        Path(name).unlink()


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that lines of one writer are never interleaved or torn."""
    with _named(path), path.open("a", encoding="utf-8") as out:
        out.write(line.rstrip("\n") + "\n")
        out.flush()


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable; some network file systems refuse this, and that is fine."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
