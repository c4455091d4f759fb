"""The image of ranks, checked before anything is submitted and once more before they start."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.cell import container
from jobs.cell.container import Image, find_image, image_now
from tests.builders import refusal
from train.errors import ConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where digests are noted, also of files of this very moment."""
    root = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    monkeypatch.setattr(container, "TICK_S", -1.0)
    return root / "horoscale" / "digests"


def sif(path: Path, data: int = 1000, missing: int = 0, fill: bytes = b"x") -> Path:
    """A file with the header of a SIF image whose data are said to be so long."""
    head = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\x00"
    head = head.ljust(112, b"\0") + struct.pack("<2q", 128, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + fill * (data - missing))
    return path


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def found(path: Path) -> Image:
    return find_image(str(path), path.parent)


def test_none_a_folder_and_a_built_image(tmp_path: Path) -> None:
    assert find_image("none", tmp_path) == Image("none", None)
    assert found(tmp_path) == Image(str(tmp_path), None), "unpacked"
    path = sif(tmp_path / "containers" / "images" / "cpu.sif")
    image = find_image("cpu", tmp_path)
    assert (image.path, image.digest) == (str(path), sha256(path))
    for one in (image, Image("none", None), Image(str(tmp_path), None)):
        assert image_now(one) == one


def test_what_is_no_image_is_refused_with_what_to_do(tmp_path: Path, monkeypatch) -> None:
    said = refusal(find_image, "gpu", tmp_path)
    assert "gpu.sif" in said and "make image IMAGE=gpu" in said
    assert "there is no image /" in refusal(find_image, "~nobody-here/x.sif", tmp_path)
    own = tmp_path / "own.sif"
    said = refusal(found, own)
    assert "there is no image" in said and "IMAGE= on this machine, image: in the site" in said
    own.write_text("<html>404")
    assert "is no SIF image (it begins with b'<html>404')" in refusal(found, own)
    assert "in its path" in refusal(found, sif(tmp_path / "a,b.sif"))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root reads everything
    said = refusal(found, own)
    assert "cannot be read (Permission denied): " in said


@pytest.mark.parametrize("missing", [1, 1000, 1028])
def test_cut_off(tmp_path: Path, missing: int) -> None:
    """As a copy that was interrupted, in its header, too: every node would fail on it."""
    path = sif(tmp_path / "own.sif")
    path.write_bytes(path.read_bytes()[:-missing])
    assert f"cut off: {1128 - missing:,} bytes found, " in refusal(found, path)


def test_another_content_has_the_digest_of_what_is_there(tmp_path: Path) -> None:
    """Of the same inode, size and time of its content, which cp -p and mv bring along, too."""
    path = sif(tmp_path / "own.sif")
    before, times = found(path), path.stat()
    time.sleep(0.02)  # more than a tick of the kernel's clock
    sif(path, fill=b"y")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert image_now(before).digest == found(path).digest == sha256(path) != before.digest


def forge(cache: Path) -> Path:
    """The only note, with another digest: it shows whether the note or the file was read."""
    (note,) = cache.iterdir()
    note.write_text("f" * 64)
    return note


def test_a_file_is_read_once_and_its_note_is_private(tmp_path: Path, cache: Path) -> None:
    path = sif(tmp_path / "own.sif")
    known = found(path)
    assert known.digest == sha256(path)
    assert forge(cache).stat().st_mode & 0o777 == 0o600
    assert cache.stat().st_mode & 0o777 == 0o700
    assert found(path).digest == "f" * 64
    shutil.rmtree(cache)
    assert image_now(known) == known and not cache.exists(), "the submission knew it"


ROOT_ALONE = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.mark.parametrize("spoil", [
    lambda note: note.chmod(0o620), lambda note: note.chmod(0o602),
    lambda note: note.write_text(""), lambda note: note.write_text("f" * 63),
    pytest.param(lambda note: os.chown(note, 12345, 12345), marks=ROOT_ALONE),
])  # fmt: skip
def test_a_note_that_another_could_have_written_or_that_is_broken_is_not_believed(
    tmp_path: Path, cache: Path, spoil
) -> None:
    path = sif(tmp_path / "own.sif")
    found(path)
    note = forge(cache)
    spoil(note)
    assert found(path).digest == sha256(path)
    assert note.read_text() == sha256(path), "it was written again"


@pytest.mark.parametrize("named", ["~/.cache", "cache", ""])
def test_a_cache_that_is_no_absolute_path_is_not_used(tmp_path: Path, monkeypatch, named) -> None:
    """As the XDG specification says. Seen: a folder named ~ in the working folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", named)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found(sif(tmp_path / "own.sif"))
    assert not list((tmp_path / "here").iterdir())
    assert len(list((tmp_path / "home/.cache/horoscale/digests").iterdir())) == 1


def test_without_a_note_the_file_is_read(tmp_path: Path, cache: Path, monkeypatch) -> None:
    """A file of this moment has none: it may change once more within the same tick, unseen."""
    path = sif(tmp_path / "own.sif")
    with monkeypatch.context() as moment:
        moment.setattr(container, "TICK_S", 3600.0)
        assert found(path).digest == sha256(path) and not cache.exists()
    cache.parent.parent.rmdir()
    cache.parent.parent.write_text("a file where a folder belongs")
    assert found(path).digest == sha256(path)


def test_a_job_reads_the_image_where_its_mark_does_not_hold(tmp_path: Path) -> None:
    """The mark of another file proves nothing; earlier versions submitted without one."""
    known = found(sif(tmp_path / "own.sif"))
    assert known.mark is not None
    assert image_now(replace(known, mark=(0, 0, 0, 0))) == known
    assert image_now(replace(known, mark=None)) == known
    sif(tmp_path / "own.sif", missing=5)
    with pytest.raises(ConfigError, match=r"cut off.* Copy it again, or put it back"):
        image_now(known)
