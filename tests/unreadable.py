"""Files that are there and cannot be read, for any user: the kernel answers with EIO."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

#: Nothing is mapped at its beginning, so that a read of it fails as that of a bad disk does.
BAD = Path("/proc/self/mem")


def unreadable(file: Path) -> Path:
    """Put a file in place, or instead of what is there, that cannot be read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.symlink_to(BAD)
    return file


def is_untouched(cell: Path, file: Path) -> bool:
    """Whether that file is still there, and the cell got neither a record nor an archive."""
    record = cell / "record.json"
    others = [record] if record.exists() and record != file else []
    return file.readlink() == BAD and not others and not (cell / "archive").exists()


class Once:
    """``Path.read_bytes`` that fails for some files, ``times`` times each, and then works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, times: int, number: int) -> None:
        self.left = times
        real = Path.read_bytes

        def read_bytes(path: Path) -> bytes:
            if path.name == name and self.left:
                self.left -= 1
                raise OSError(number, "as a file server says", str(path))
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", read_bytes)


#: What pathlib does with files and folders.
_CALLS = ("stat", "open", "iterdir", "mkdir", "touch", "unlink")


def stale(monkeypatch: pytest.MonkeyPatch, *places: Path, calls: tuple[str, ...] = _CALLS) -> None:
    """From now on the file server answers with ESTALE about these, and all that is in them."""

    def refusing(name: str) -> Any:
        real = getattr(Path, name)

        def refuse(path: Path, *given: Any, **named: Any) -> Any:
            if any(path == place or place in path.parents for place in places):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
            return real(path, *given, **named)

        return refuse

    for name in calls:
        monkeypatch.setattr(Path, name, refusing(name))
