"""The image of a site, checked before anything is submitted."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.cell import image as module
from jobs.cell.container import Image
from jobs.cell.image import find_image, image_now
from jobs.config.site import Site
from train.errors import ConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where digests are noted, also of files of this very moment."""
    root = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(root))
    monkeypatch.setattr(module, "TICK_S", -1.0)
    return root / "horoscale" / "digests"


def sif(path: Path, data: int = 1000, missing: int = 0, fill: bytes = b"x") -> Path:
    """A file with the header of a SIF image whose data are said to be so long."""
    head = b"#!/usr/bin/env run-singularity\n".ljust(32, b"\0") + b"SIF_MAGIC\x00"
    head = head.ljust(112, b"\0") + struct.pack("<2q", 128, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + fill * (data - missing))
    return path


def at(path: Path | str) -> Site:
    return Site(ranks_per_node=1, image=str(path))


def refusal(site: Site, root: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        find_image(site, root)
    return str(caught.value)


def test_no_image_is_a_choice(tmp_path: Path) -> None:
    assert find_image(at("none"), tmp_path) == Image("none", None)


def test_a_built_image_is_found_in_the_checkout(tmp_path: Path) -> None:
    path = sif(tmp_path / "containers" / "images" / "cpu.sif")
    found = find_image(at("cpu"), tmp_path)
    assert found.path == str(path)
    assert found.digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_missing(tmp_path: Path) -> None:
    said = refusal(at("gpu"), tmp_path)
    assert "gpu.sif" in said and "make image IMAGE=gpu" in said
    said = refusal(at(tmp_path / "own.sif"), tmp_path)
    assert "there is no image" in said and "image: in the site" in said


def test_no_sif(tmp_path: Path) -> None:
    (tmp_path / "own.sif").write_text("<html>404")
    assert "is no SIF image (it begins with b'<html>404')" in refusal(
        at(tmp_path / "own.sif"), tmp_path
    )


@pytest.mark.parametrize("missing", [1, 999, 1000])
def test_cut_off(tmp_path: Path, missing: int) -> None:
    """As a copy that was interrupted: every node would fail on it."""
    said = refusal(at(sif(tmp_path / "own.sif", missing=missing)), tmp_path)
    assert f"{1128 - missing:,} bytes found, 1,128 expected" in said


def test_cut_off_in_its_header(tmp_path: Path) -> None:
    path = sif(tmp_path / "own.sif")
    path.write_bytes(path.read_bytes()[:100])
    assert "cut off" in refusal(at(path), tmp_path)


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root reads everything, so the refusal is the file system's."""
    path = sif(tmp_path / "own.sif")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    said = refusal(at(path), tmp_path)
    assert "cannot be read (Permission denied): fix its permissions" in said


def test_a_folder_is_an_unpacked_image(tmp_path: Path) -> None:
    assert find_image(at(tmp_path), tmp_path) == Image(str(tmp_path), None)


@pytest.mark.parametrize("sign", [",", "%", "\n", ":", "\\"])
def test_paths_that_a_launch_line_cannot_hold(tmp_path: Path, sign: str) -> None:
    if sign == "\n":
        with pytest.raises(ValueError, match="single line"):
            at(tmp_path / f"a{sign}b.sif")
        return
    assert "in its path" in refusal(at(sif(tmp_path / f"a{sign}b.sif")), tmp_path)


def submitted(path: Path) -> Image:
    """As the job receives it."""
    return find_image(at(path), path.parent)


def test_an_image_that_stayed_keeps_its_digest(tmp_path: Path) -> None:
    told = submitted(sif(tmp_path / "own.sif"))
    assert image_now(told) == told
    assert image_now(Image("none", None)) == Image("none", None)
    assert image_now(Image(str(tmp_path), None)) == Image(str(tmp_path), None), "unpacked"


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def replaced(image: Path) -> None:
    new = sif(image.with_name("new.sif"), fill=b"y")
    shutil.copystat(image, new)  # as cp -p and rsync -t leave it: no newer than the first
    new.replace(image)


def moved(image: Path) -> None:
    """An image that is older than the first and its note comes back with mv."""
    old = sif(image.with_name("old.sif"), data=2000)
    os.utime(old, (1000, 1000))
    old.replace(image)


def overwritten(image: Path) -> None:
    """The same inode, size and time of its content."""
    times = image.stat()
    sif(image, fill=b"y")
    os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("change", [replaced, moved, overwritten])
def test_another_content_has_the_digest_of_what_is_there(tmp_path: Path, change) -> None:
    image = sif(tmp_path / "own.sif")
    told = submitted(image)
    image.with_name("own.sif.sha256").write_text(str(told.digest))  # says nothing of this file
    time.sleep(0.02)  # more than a tick of the kernel's clock
    change(image)
    assert image_now(told).digest == submitted(image).digest == sha256(image) != told.digest


def forge(cache: Path) -> Path:
    """The only note, with another digest: it shows whether the note or the file was read."""
    (note,) = cache.iterdir()
    note.write_text("f" * 64)
    return note


def test_a_file_is_read_once_and_its_note_is_private(tmp_path: Path, cache: Path) -> None:
    image = sif(tmp_path / "own.sif")
    assert submitted(image).digest == sha256(image)
    assert forge(cache).stat().st_mode & 0o777 == 0o600
    assert cache.stat().st_mode & 0o777 == 0o700
    assert submitted(image).digest == "f" * 64


def test_what_the_submission_knew_needs_no_note(tmp_path: Path, cache: Path) -> None:
    told = submitted(sif(tmp_path / "own.sif"))
    shutil.rmtree(cache)
    assert image_now(told) == told and not cache.exists()


@pytest.mark.parametrize("spoil", ["group", "others", "owner", "text"])
def test_a_note_that_another_could_have_written_or_that_is_broken_is_not_believed(
    tmp_path: Path, cache: Path, spoil: str
) -> None:
    image = sif(tmp_path / "own.sif")
    submitted(image)
    note = forge(cache)
    if spoil == "text":
        note.write_text("")
    elif spoil == "owner":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(note, 12345, 12345)
    else:
        note.chmod(0o620 if spoil == "group" else 0o602)
    assert submitted(image).digest == sha256(image)
    assert submitted(image).digest == sha256(image), "it was written again"


def test_a_file_of_this_moment_is_not_noted(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change once more within the same tick, unseen."""
    monkeypatch.setattr(module, "TICK_S", 3600.0)
    image = sif(tmp_path / "own.sif")
    assert submitted(image).digest == sha256(image) and not cache.exists()


def test_without_a_cache_the_file_is_read(tmp_path: Path, cache: Path) -> None:
    cache.parent.parent.rmdir()
    cache.parent.parent.write_text("a file where a folder belongs")
    image = sif(tmp_path / "own.sif")
    assert submitted(image).digest == sha256(image)


def test_a_node_that_sees_another_device_number_reads_the_image(tmp_path: Path) -> None:
    """As with NFS; a job that an earlier version of the suite submitted has no mark."""
    told = submitted(sif(tmp_path / "own.sif"))
    assert told.mark is not None
    elsewhere = told.mark.model_copy(update={"device": told.mark.device + 1})
    assert image_now(replace(told, mark=elsewhere)) == told
    assert image_now(replace(told, mark=None)) == told


def test_an_image_that_is_gone_or_half_copied_fails_with_what_to_do(tmp_path: Path) -> None:
    told = submitted(sif(tmp_path / "own.sif"))
    sif(tmp_path / "own.sif", missing=5)
    with pytest.raises(ConfigError, match=r"cut off.* Copy it again, or put it back"):
        image_now(told)
    Path(told.path).unlink()
    with pytest.raises(ConfigError, match=r"there is no image .*: put it back, or name another"):
        image_now(told)
