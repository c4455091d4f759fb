"""A cell's folder, and a disk that can be filled without harm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL_DISK_BYTES = 128 * 1024


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    """A cell's folder, in which a start may leave its logs."""
    (tmp_path / "logs").mkdir()
    return tmp_path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a file system of its own with 128 KiB."""
    folder = tmp_path / "small-disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a small file system can be mounted by root only")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "tmpfs", str(folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no free block on the file system of ``folder``."""
    with (folder / "filler").open("wb", buffering=0) as out:
        try:
            while out.write(bytes(4096)):
                pass
        except OSError:
            return
