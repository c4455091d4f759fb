"""What is said of a file system that refuses: what is so, and never what is not."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.acting import acting
from tests.sweeps import executable
from train.errors import DataError, explained, make_line, remedy, start_error

#: Error number -> a word of the advice; '': the system's own words alone.
ADVICE = {
    errno.EDQUOT: "quota", errno.EROFS: "read-only", errno.ESTALE: "file server",
    errno.EIO: "file server", errno.ETIMEDOUT: "file server", errno.ENOENT: "",
    errno.ENAMETOOLONG: "", errno.ETXTBSY: "", errno.EMFILE: "open files",
}  # fmt: skip
WORDS = {word for word in ADVICE.values() if word} | {"free space", "inodes", "permissions"}
GB = 1 << 30


@pytest.mark.parametrize(("number", "word"), ADVICE.items())
def test_advice_is_that_of_the_error(tmp_path: Path, number: int, word: str) -> None:
    refusal = OSError(number, os.strerror(number), "/results/x")
    with pytest.raises(DataError) as caught, explained("reading the data", tmp_path):
        raise refusal
    for text in (remedy(refusal), str(caught.value)):
        advice = text.lower().replace(os.strerror(number).lower(), "")
        assert {other for other in WORDS if other in advice} == ({word} if word else set())


@pytest.mark.parametrize(
    ("blocks", "inodes", "all_inodes", "words"),
    [
        (0, 100, 1000, "free space on the file system of"),
        (GB, 0, 1000, "its inodes are used up"),
        (0, 0, 0, "free space on the file system of"),  # btrfs counts none
        (GB, 100, 1000, "(1.1 GB left), or look for a quota there"),
        (0, 100, 1000, "(0.0 GB left), or look for a quota there"),
    ],
)
def test_a_full_disk_lacks_what_its_file_system_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks, inodes, all_inodes, words
) -> None:
    """Seen: where no inode was left, the advice was to free space. A quota shows in nothing."""
    facts = SimpleNamespace(f_bavail=blocks, f_frsize=1, f_favail=inodes, f_files=all_inodes)
    monkeypatch.setattr(os, "statvfs", lambda _: facts)
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "new" / "file"))
    assert words in remedy(full) and str(tmp_path) in remedy(full)
    unnamed = OSError(errno.ENOSPC, "No space left on device")
    assert words in remedy(unnamed, tmp_path) and remedy(unnamed) == ""


def test_what_forbids_is_named(tmp_path: Path) -> None:
    """The folder that is closed, and no cause where every permission is there."""
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        top = Path(name).resolve()
        (top / "closed" / "inside").mkdir(parents=True)
        (top / "open").mkdir()
        for file in (top / "secret", top / "lock", top / "open" / "lock"):
            file.write_text("x")
            file.chmod(0o644)
        modes = {".": 0o755, "closed": 0o700, "secret": 0o600, "open": 0o777}
        for path, mode in ((top / name, mode) for name, mode in modes.items()):
            path.chmod(mode)
        forbids = {
            top / "closed" / "inside" / "file": f"{top}/closed, which this user may not enter",
            top / "secret": f"{top}/secret, which this user may not read",
            top / "new" / "file": f"{top}, where this user may not write",
            top / "lock": f"{top}, where this user may not write",  # it stays so after chmod
            top / "open" / "lock": f"{top}/open/lock, where this user may not write",
        }

        def look() -> None:
            for path, words in forbids.items():
                for number in (errno.EACCES, errno.EPERM):
                    refused = OSError(number, os.strerror(number), str(path))
                    assert remedy(refused) == f"fix the permissions of {words}"
            with tempfile.NamedTemporaryFile(dir="/tmp") as own:  # chattr +i, or SELinux
                assert remedy(OSError(errno.EPERM, "Operation not permitted", own.name)) == ""

        assert acting(54321, 54321, look) == 0


def test_a_suggested_command_is_of_the_folder_that_make_was_told(tmp_path, monkeypatch) -> None:
    """Without it, `make logs` looked into another folder; jobs named no other one."""
    monkeypatch.delenv("RESULTS", raising=False)
    assert make_line("logs", SWEEP="a $b") == "make logs SWEEP='a $$b'"
    monkeypatch.setenv("RESULTS", str(tmp_path))
    assert make_line("logs", SWEEP="a") == f"make logs SWEEP=a RESULTS={tmp_path}"
    assert make_line("logs", tmp_path / "other", SWEEP="a") == "make logs SWEEP=a"
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("RESULTS", "results")
    assert make_line("logs", SWEEP="a") == "make logs SWEEP=a"


@pytest.fixture
def closed(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of programs, between two of PATH that this user may not enter or that is a file."""
    (open_folder / "closed").mkdir(mode=0)
    (open_folder / "file").touch()
    names = ("closed", "bin", "file")
    monkeypatch.setenv("PATH", os.pathsep.join(str(open_folder / name) for name in names))
    user = os.geteuid()
    executable(open_folder / "bin" / "refused", "#!/bin/sh\n").chmod(0o644)
    executable(open_folder / "bin" / "uninterpreted", "#!/no/such/shell\n")
    if user == 0:
        os.seteuid(65534)
    yield open_folder / "bin"
    os.seteuid(user)


def test_a_program_that_is_missing_is_told_from_one_that_may_not_be_run(closed: Path) -> None:
    """As after `su NAME` without a dash: exec ends with the error of root's folder."""
    reasons = {
        "missing": (FileNotFoundError, "missing: no such program on PATH"),
        "refused": (PermissionError, f"{closed}/refused: Permission denied"),
        "uninterpreted": (OSError, f"{closed}/uninterpreted: the interpreter in its first line"),
        f"{closed}/missing": (FileNotFoundError, f"{closed}/missing: No such file or directory"),
        f"{closed}/../closed/it": (PermissionError, f"{closed}/../closed/it: Permission denied"),
    }
    for program, (kind, reason) in reasons.items():
        with pytest.raises(OSError) as caught:
            subprocess.run([program], check=False)
        cause = start_error(caught.value, program, os.environ)
        assert isinstance(cause, kind)
        assert f"{cause.filename}: {cause.strerror}".startswith(reason)


def test_a_folder_to_start_in_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        subprocess.run(["true"], cwd=tmp_path / "gone", check=False)
    assert start_error(caught.value, "true", os.environ) is caught.value
