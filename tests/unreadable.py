"""Files that are there and cannot be read, for any user: the kernel answers with EIO."""

from __future__ import annotations

from pathlib import Path

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
