"""Files are whole or absent: on a full disk, when killed, and for whoever reads meanwhile."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.train.conftest import SMALL_DISK_BYTES, fill
from train.record.atomic import append_line, write_atomically, write_new

ROOT = Path(__file__).resolve().parents[3]
#: Rewrites one file without a pause; documents of very different length, each closed by its number.
WRITER = """
import json, sys
from pathlib import Path
from train.record.atomic import write_atomically
n = 0
while True:
    n += 1
    fill = "x" * (7 + (n % 5) ** 4 * 1000)
    write_atomically(Path(sys.argv[1]), json.dumps({"first": n, "fill": fill, "last": n}))
"""


def temporaries(folder: Path) -> list[Path]:
    return list(folder.glob(".*"))


@pytest.mark.parametrize("text", ["", "short\n", "ü" * 100_000])
def test_written_text_is_read_back(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.json"
    file.write_text("an older one")
    write_atomically(file, text)
    assert file.read_text(encoding="utf-8") == text
    assert not temporaries(tmp_path)


@pytest.mark.parametrize("write", [write_atomically, write_new, append_line])
@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_the_umask_decides_who_may_read(tmp_path: Path, write, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode


def test_steps_that_the_content_does_not_need_may_be_refused(tmp_path: Path, monkeypatch) -> None:
    """Seen on CIFS: no mode can be set. Some FUSE file systems cannot flush, or have no links."""

    def refuse(number: int):
        def refused(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        return refused

    for name in ("chmod", "fchmod", "chown", "utime", "link"):
        monkeypatch.setattr(os, name, refuse(errno.EPERM))
    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    write_atomically(tmp_path / "one", "text")
    assert write_new(tmp_path / "two", "text")
    assert [(tmp_path / name).read_text() for name in ("one", "two")] == ["text"] * 2
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="one"):
        write_atomically(tmp_path / "one", "lost")
    assert (tmp_path / "one").read_text() == "text"


def test_a_full_disk_leaves_the_old_file_and_nothing_else(small_disk: Path) -> None:
    file = small_disk / "record.json"
    write_atomically(file, "the old one")
    with pytest.raises(OSError) as full:
        write_atomically(file, "x" * SMALL_DISK_BYTES)
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, str(file))
    assert file.read_text() == "the old one"
    assert not temporaries(small_disk)
    write_atomically(file, "there is room again")
    assert file.read_text() == "there is room again"


def test_a_line_for_a_full_disk_is_an_error_and_the_lines_before_stay(small_disk: Path) -> None:
    file = small_disk / "epochs.jsonl"
    append_line(file, json.dumps({"epoch": 1}))
    fill(small_disk)
    with pytest.raises(OSError) as full:
        for _ in range(3):  # what is left of the file's own block takes some
            append_line(file, json.dumps({"epoch": 2, "fill": "x" * 3000}))
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, str(file))
    assert json.loads(file.read_text().splitlines()[0]) == {"epoch": 1}


@pytest.mark.parametrize("moment", ["os.fsync", "pathlib.Path.replace"])
def test_an_interrupt_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    file = tmp_path / "record.json"
    file.write_text("the old one")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(file, "the new one")
    assert file.read_text() == "the old one"
    assert not temporaries(tmp_path)


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_there_stays_and_a_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "this file system has no hard links")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    file = tmp_path / "record.json"
    assert write_new(file, "the first")
    assert not write_new(file, "the second")
    assert file.read_text() == "the first"
    assert not temporaries(tmp_path)


def test_readers_never_see_a_half_and_a_killed_writer_leaves_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    seen = set()
    for _ in range(3):  # killed at three unforeseeable moments
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], cwd=ROOT)
        try:
            deadline = time.monotonic() + 60
            while not file.exists():
                assert time.monotonic() < deadline and writer.poll() is None
            until = time.monotonic() + 0.5
            while time.monotonic() < until or len(seen) <= 3:  # it writes while it is read
                assert time.monotonic() < deadline
                seen.add(whole(file))
        finally:
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        whole(file)


def whole(file: Path) -> tuple[int, int]:
    told = json.loads(file.read_text())
    assert told["first"] == told["last"]
    return told["first"], len(told["fill"])
