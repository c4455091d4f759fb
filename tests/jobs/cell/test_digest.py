"""The sha256 of an image: read once while it is the same file, and not believed any longer."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from jobs.cell import image as module
from jobs.cell.image import digest_of


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the notes are; also files of this very moment are noted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "TICK_S", -1.0)
    return tmp_path / "cache" / "horoscale" / "digests"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    file = tmp_path / "own.sif"
    file.write_bytes(b"the first")
    return file


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def forge(cache: Path) -> Path:
    """The only note, with another digest: it shows whether the note or the file was read."""
    (note,) = cache.iterdir()
    note.write_text(json.dumps(json.loads(note.read_text()) | {"sha256": "f" * 64}))
    return note


def test_a_file_is_read_once(image: Path, cache: Path) -> None:
    assert digest_of(image).sha256 == sha256(image)
    forge(cache)
    assert digest_of(image).sha256 == "f" * 64


def test_what_was_told_at_the_submission_needs_no_cache(image: Path, cache: Path) -> None:
    known = digest_of(image)
    shutil.rmtree(cache)
    assert digest_of(image, known) == known
    assert not cache.exists()


def replaced(image: Path) -> None:
    new = image.with_name("new.sif")
    new.write_bytes(b"the other")
    shutil.copystat(image, new)  # as cp -p and rsync -t leave it: no newer than the first
    new.replace(image)


def moved(image: Path) -> None:
    """An image that is older than the first and its note comes back with mv."""
    old = image.with_name("old.sif")
    old.write_bytes(b"an older one")
    os.utime(old, (1000, 1000))
    old.replace(image)


def overwritten(image: Path) -> None:
    """The same inode, size and time of its content."""
    times = image.stat()
    image.write_bytes(b"the other")
    os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", [replaced, moved, overwritten])
def test_another_content_is_never_taken_for_the_first(image: Path, cache: Path, change) -> None:
    known = digest_of(image)
    image.with_name("own.sif.sha256").write_text(known.sha256)  # says nothing of this file
    time.sleep(0.02)  # more than a tick of the kernel's clock
    change(image)
    assert digest_of(image, known).sha256 == sha256(image) != known.sha256


def test_notes_are_private(image: Path, cache: Path) -> None:
    digest_of(image)
    (note,) = cache.iterdir()
    assert note.stat().st_mode & 0o777 == 0o600
    assert cache.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("others", [0o020, 0o002])
def test_a_note_that_others_could_write_is_not_believed(
    image: Path, cache: Path, others: int
) -> None:
    digest_of(image)
    forge(cache).chmod(0o600 | others)
    assert digest_of(image).sha256 == sha256(image)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_note_of_another_user_is_not_believed(image: Path, cache: Path) -> None:
    digest_of(image)
    os.chown(forge(cache), 12345, 12345)
    assert digest_of(image).sha256 == sha256(image)


@pytest.mark.parametrize("text", ["", "{}", "[]", "\x00"])
def test_a_broken_note_is_written_anew(image: Path, cache: Path, text: str) -> None:
    digest_of(image)
    (note,) = cache.iterdir()
    note.write_text(text)
    assert digest_of(image).sha256 == sha256(image)
    assert json.loads(note.read_text())["sha256"] == sha256(image)


def test_a_file_of_this_moment_is_not_noted(
    image: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change once more within the same tick, unseen."""
    monkeypatch.setattr(module, "TICK_S", 3600.0)
    assert digest_of(image).sha256 == sha256(image)
    assert not cache.exists()


def test_without_a_cache_the_file_is_read(image: Path, cache: Path) -> None:
    cache.parent.parent.write_text("a file where a folder belongs")
    assert digest_of(image).sha256 == sha256(image)
