"""Who works on a sweep's folder, also where locks do not reach from one machine to another."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
from contextlib import nullcontext
from pathlib import Path

import pytest

from jobs.cell.lock import only_sweep
from train.errors import ConfigError
from train.record import mount as mounts
from train.record.lock import (
    LOCK_NAME,
    Holder,
    MayRun,
    hold,
    holder,
    is_free,
    seen_here,
    signed,
)
from train.record.mount import BOOT_ID, device_of, mount_in_words

HOST, OURS = os.uname().nodename, BOOT_ID.read_text().strip()
THEIRS = "00000000-1111-2222-3333-444444444444"


def prove(results: Path, *pairs: tuple[str, str]) -> None:
    """A report of a preflight for each pair: whose lock was seen, and by which machine."""
    for number, pair in enumerate(pairs):
        folder = results / "preflight" / str(number)
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(json.dumps({"locks": [pair]}))
    others = ('{"job": "7"}', '{"lo', "[]", '{"locks": [null]}', '{"locks": [["a", ["b"]]]}')
    for name, text in enumerate(others, len(pairs)):
        (results / "preflight" / str(name)).mkdir(parents=True)
        (results / "preflight" / str(name) / "report.json").write_text(text)


LOGIN, NODE = f"{THEIRS} 0:45", "11111111-1111-2222-3333-444444444444 0:50"


@pytest.mark.parametrize(
    ("text", "proofs", "taken"),
    [
        ("process 7 on login2", [], False),  # of an earlier version: no proof
        (f"process 7 on {HOST}", [], True),
        (f"process 7 on login2, boot {OURS}", [], True),  # a container of this kernel
        (f"process 7 on {HOST}, boot {THEIRS}, 0:45", [], True),  # rebooted
        (f"process 7 on login2, boot {THEIRS}", [(LOGIN, "HERE")], False),  # on which mount?
        # of an earlier version, which went by the type of the file system
        (f"process 7 on login2, boot {THEIRS}, nfs", [(LOGIN, "HERE")], False),
        (f"process 7 on login2, boot {THEIRS}, 0:45", [], False),
        (f"process 7 on login2, boot {THEIRS}, 0:45", [(LOGIN, "HERE")], True),
        (f"process 7 on login2, boot {THEIRS}, 0:45", [("HERE", LOGIN)], True),
        (f"job 7_2, process 7 on login2, boot {THEIRS}, 0:45", [("HERE", LOGIN)], True),
        # both were seen by one node
        (f"process 7 on login2, boot {THEIRS}, 0:45", [(LOGIN, NODE), ("HERE", NODE)], True),
        # locks reach from node to node, and nothing is known of this machine
        (f"process 7 on login2, boot {THEIRS}, 0:45", [(LOGIN, NODE), (NODE, LOGIN)], False),
        # the results were on another mount when it was shown
        (f"process 7 on login2, boot {THEIRS}, 0:46", [(LOGIN, "HERE")], False),
        (f"process 7 on login2, boot {THEIRS}, 0:45", [(LOGIN, f"{OURS} 0:0")], False),
        ("\ufffd\ufffd", [], True),  # nobody's
    ],
)
def test_the_lock_of_one_that_is_provably_gone_is_taken_over(
    tmp_path: Path,
    text: str,
    proofs: list[tuple[str, str]],
    taken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lock that was got proves it where a preflight showed that locks reach so far."""
    monkeypatch.setattr(mounts, "file_system", lambda _: ("nfs4", "srv:/x"))
    folder = tmp_path / "a b"
    folder.mkdir()
    mount = device_of(folder)
    here = f"{OURS} {mount}"
    prove(tmp_path, *((a.replace("HERE", here), b.replace("HERE", here)) for a, b in proofs))
    file = folder / ".lock"
    file.write_text(text)
    if not taken:
        with pytest.raises(ConfigError, match="another machine") as refused, only_sweep(folder):
            pass
        assert "is signed by " in str(refused.value) and " on login2;" in str(refused.value)
        assert str(refused.value).endswith(f"remove it: rm {shlex.quote(str(file))}")
        assert file.read_text() == text
        return
    with only_sweep(folder):
        assert signed(file.read_text()) == Holder(os.getpid(), HOST, OURS, mount)
        assert seen_here(folder, ".lock") == [], "its own lock shows nothing"
    assert file.read_text() == "", "signed off"


ELSEWHERE = f"process 7 on login2, boot {THEIRS}, 0:45"


@pytest.mark.parametrize(
    ("signature", "held"),
    [
        (ELSEWHERE, False),
        (f"job 77_0, {ELSEWHERE}", False),
        # by Slurm's word that job has ended, or it is this one
        (f"job 66, {ELSEWHERE}", True),
        (f"job 7_5, {ELSEWHERE}", True),
        ("", True),
    ],
)
def test_a_cell_is_held_only_when_whoever_ran_it_has_ended(
    tmp_path: Path, signature: str, held: bool
) -> None:
    """Seen: on a mount whose locks end at the machine a second run began over a live one, and its
    signature was erased."""
    cell = tmp_path / "a b" / "cell"
    cell.mkdir(parents=True)
    (file := cell / LOCK_NAME).write_text(signature)
    for _ in range(2):
        allowed = nullcontext() if held else pytest.raises(MayRun)
        with allowed as refused, hold(cell, job="7_5", ended=lambda job: job == "66") as ours:
            assert ours
        if refused is not None:
            assert str(refused.value).endswith(f"remove it: rm {shlex.quote(str(file))}")
            assert file.read_text() == signature, "it stays for the next look"


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    where = re.escape(mount_in_words(tmp_path))
    words = rf"Operation not supported: flock fails on {where}: mount it .*nolock.*RESULTS=DIR"
    with pytest.raises(ConfigError, match=words):
        only_sweep(tmp_path).__enter__()
    with pytest.raises(OSError, match=words):
        hold(tmp_path).__enter__()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("file", r"File exists: move away what is there, or name"),
        ("file/trial", r"Not a directory: move away what is there, or name"),
        (f"{300 * 'a'}", r"File name too long: name"),
        ("loop/trial", r"Too many levels of symbolic links: name"),
    ],
)
def test_a_folder_that_cannot_be_made(tmp_path: Path, name: str, words: str) -> None:
    """Seen: for every error the advice was to move away what is there."""
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=f"{words} another folder with RESULTS=DIR"):
        only_sweep(tmp_path / name).__enter__()


def test_one_sweep_per_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb" / "trial"
    with only_sweep(folder):
        who = rf"process {os.getpid()} on {HOST}"
        with (
            pytest.raises(ConfigError, match=rf"(?s)another make sweep .*{who}"),
            only_sweep(folder),
        ):
            pass


def test_the_lock_of_a_cell(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    with hold(tmp_path, job="17_2") as first:
        assert first
        with hold(tmp_path) as second:
            assert not second
        found = holder(tmp_path)
        assert found is not None and (found.job, found.boot) == ("17_2", OURS)
        assert str(found) == f"job 17_2, process {os.getpid()} on {HOST}"
    assert is_free(tmp_path) and (tmp_path / LOCK_NAME).read_text() == ""
    # a killed supervisor leaves its name, and no lock
    (tmp_path / LOCK_NAME).write_text("process 1 on somewhere")
    assert holder(tmp_path) is None
