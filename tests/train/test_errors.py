"""What is said of a file system that refuses: what is so, and never what is not."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from train.errors import DataError, explained, make_line, remedy

#: Error number -> a word of the advice; '': the system's own words alone.
ADVICE = {
    errno.ENOSPC: "free space", errno.EDQUOT: "quota", errno.EACCES: "permissions",
    errno.EPERM: "permissions", errno.EROFS: "read-only", errno.ESTALE: "file server",
    errno.EIO: "file server", errno.ETIMEDOUT: "file server", errno.ENOENT: "",
    errno.ENAMETOOLONG: "",
}  # fmt: skip
WORDS = {word for word in ADVICE.values() if word}


@pytest.mark.parametrize(("number", "word"), ADVICE.items())
def test_advice_is_that_of_the_error(tmp_path: Path, number: int, word: str) -> None:
    refusal = OSError(number, os.strerror(number), "/results/x")
    with pytest.raises(DataError) as caught, explained("reading the data", tmp_path):
        raise refusal
    for text in (remedy(refusal), str(caught.value)):
        advice = text.lower().replace(os.strerror(number).lower(), "")
        assert {other for other in WORDS if other in advice} == ({word} if word else set())


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
