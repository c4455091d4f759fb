"""What is said of a file system that refuses: what is so, and never what is not."""

from __future__ import annotations

import errno
import importlib
import os
from pathlib import Path

import pytest
import typer

from jobs.cell.failure import End, cause_of
from jobs.local.supervisor import Ranks
from jobs.messages import refusals
from tests.sweeps import ROOT
from train.errors import DataError, explained

#: Error number -> a word of the advice; '': the system's own words alone.
ADVICE = {
    errno.ENOSPC: "free space", errno.EDQUOT: "quota", errno.EACCES: "permissions",
    errno.EPERM: "permissions", errno.EROFS: "read-only", errno.ESTALE: "file server",
    errno.EIO: "file server", errno.ETIMEDOUT: "file server", errno.ENOENT: "",
    errno.ENAMETOOLONG: "",
}  # fmt: skip
WORDS = {word for word in ADVICE.values() if word}


def refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/results/x")


@pytest.mark.parametrize(("number", "word"), ADVICE.items())
def test_advice_is_that_of_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, number: int, word: str
) -> None:
    said = []
    with pytest.raises(typer.Exit), refusals():
        raise refusal(number)
    said.append(capsys.readouterr().err)
    with pytest.raises(DataError) as caught, explained("reading the data", tmp_path):
        raise refusal(number)
    said.append(str(caught.value))
    said.append(cause_of(End(tmp_path, Ranks(), trouble=refusal(number)))[1].what_to_do)
    monkeypatch.syspath_prepend(str(ROOT / "containers"))

    def refuse() -> None:
        raise refusal(number)

    importlib.import_module("runner").guarded(refuse, said.append, "")
    for text in said:
        advice = text.lower().replace(os.strerror(number).lower(), "")
        assert word in advice
        assert {other for other in WORDS if other in advice} == ({word} if word else set())
