"""Files that are whole or absent: write under a temporary name, flush to disk, rename."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` so that a reader sees the old file or the new one, never a half.

    Raises:
        OSError: the disk is full or the folder not writable; the old file is then untouched and
            nothing is left under a temporary name.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    _sync_folder(path.parent)


def append_line(path: Path, line: str) -> None:
    """Append one line in one write, so that lines of one writer are never interleaved or torn."""
    with path.open("a", encoding="utf-8") as out:
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
