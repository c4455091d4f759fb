"""The pure judgements of a preflight, on values as machines have them."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

import pytest

from train.distributed.preflight import checks
from train.distributed.preflight.checks import (
    check_cuda,
    check_gpu,
    check_gpu_models,
    check_lock,
    check_need,
    check_pmix,
    check_python,
    check_writable,
    finding,
)
from train.record.mount import boot_id, device_of, mount_in_words


@pytest.mark.parametrize(
    ("version", "ok"), [((3, 9, 18), False), ((3, 10, 0), True), ((3, 11, 2), True)]
)
def test_python(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int], ok: bool) -> None:
    """Ranks also run on Python 3.10, as docs/images.md says of images of others."""
    monkeypatch.setattr(sys, "version_info", version)
    assert check_python()["ok"] is ok


@pytest.mark.parametrize(
    ("environment", "world", "ok"),
    [
        ({"PMIX_RANK": "0"}, 4, True),
        ({}, 4, False),
        ({}, 1, True),
        ({"HOROSCALE_RENDEZVOUS": "/x"}, 4, True),
    ],
)
def test_pmix(environment, world, ok) -> None:
    found = check_pmix(environment, world)
    assert found["ok"] is ok and bool(found["fix"]) is not ok


NODE = "11111111-1111-2222-3333-444444444444 0:45"


@pytest.mark.parametrize(
    ("held", "holder", "ok"),
    [
        (True, NODE, True),
        (False, NODE, False),  # as with nolock or localflock: the lock is granted
        (True, "OURS", None),  # a lock that this kernel granted shows nothing
        (True, "", None),
        (False, "", None),
    ],
)
def test_a_lock_of_another_machine(
    tmp_path: Path, held: bool, holder: str, ok: bool | None
) -> None:
    file = tmp_path / ".running"
    here = f"{boot_id()} {device_of(tmp_path)}"
    with file.open("a+") as handle:
        if held:
            fcntl.flock(handle, fcntl.LOCK_EX)
        told = check_lock(file, holder.replace("OURS", here))
    assert (told[0]["ok"], told[1]) == (ok, here if ok else "")
    assert mount_in_words(file) in told[0]["found"]
    assert ok is not False or "RESULTS=DIR" in told[0]["fix"]


def test_a_node_on_which_locks_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: every cell failed after a preflight that had passed."""

    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    (tmp_path / "lock").touch()
    monkeypatch.setattr(checks.fcntl, "flock", refuse)
    told, _ = check_lock(tmp_path / "lock", "")
    assert told["ok"] is False and "nolock" in told["fix"]
    assert f"No locks available, on {mount_in_words(tmp_path)}" in told["found"]
    assert "No such file" in check_lock(tmp_path / "none", NODE)[0]["found"]


@pytest.mark.parametrize(
    ("names", "local_size", "wanted", "ok"),
    [
        (["H100"], 8, True, True),  # each task is shown its own
        (["H100"] * 8, 8, True, True),
        (["H100"] * 4, 8, True, False),  # ranks would share
        ([], 1, True, False),
        ([], 8, False, True),
    ],
)
def test_gpu(names, local_size, wanted, ok) -> None:
    assert check_gpu(names, local_size, wanted=wanted)["ok"] is ok


@pytest.mark.parametrize(
    ("driver", "built", "wanted", "ok"),
    [
        ((12, 4), "12.2", True, True),
        ((12, 0), "12.2", True, True),  # within a major version
        ((13, 0), "12.2", True, True),
        ((11, 8), "12.2", True, False),
        (None, "12.2", True, False),
        ((12, 4), None, True, False),
        (None, None, False, True),
    ],
)
def test_cuda(driver, built, wanted, ok) -> None:
    assert check_cuda(driver, built, wanted=wanted)["ok"] is ok


@pytest.mark.parametrize(
    ("capability", "built", "ok"),
    [
        ((9, 0), "12.2", True), ((10, 0), "12.2", False), ((12, 1), "12.4", False),
        ((12, 1), "12.8", True),  # another image
        ((6, 0), "12.2", False), ((6, 0), "11.8", True),
    ],
)  # fmt: skip
def test_gpu_models(capability: tuple[int, int], built: str, ok: bool) -> None:
    told = {"Good": (9, 0), "Fake": capability}
    found = check_gpu_models(told, built, wanted=True)
    assert found["ok"] is ok and "Fake" in found["found"] and bool(found["fix"]) is not ok
    assert check_gpu_models(told, built, wanted=False)["ok"] is True


def test_writable_is_found_out_by_writing(tmp_path: Path) -> None:
    assert check_writable("/tmp", tmp_path, room=1)["ok"] is True
    assert list(tmp_path.iterdir()) == []
    lacking = check_writable("/tmp", tmp_path, room=2**62)
    assert lacking["ok"] is False and "bytes free" in lacking["found"] and lacking["fix"]
    gone = check_writable("/tmp", tmp_path / "none")
    assert gone["ok"] is False and "No such file" in gone["found"]


def test_readable(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert check_need("data", "read", tmp_path)["found"].endswith("1 entries")
    assert check_need("weights", "read", tmp_path / "a")["ok"] is True
    gone = check_need("weights", "read", tmp_path / "b")
    assert gone["ok"] is False and str(tmp_path / "b") in gone["found"]
    assert check_need("scratch", "write", tmp_path / "a")["ok"] is False


def test_what_could_not_be_told_is_no_pass_and_keeps_its_fix() -> None:
    assert finding("x", None, "?", "y", "look")["fix"] == "look"
