"""The command line: wrong words, and a machine that cannot play a cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from build import mirrors
from locks import SetupError

from containers.practice import command, daemons, needs
from containers.practice.place import CONTROLLER, Place
from tests.sweeps import ROOT


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('ID=debian\nVERSION_CODENAME=bullseye\nPRETTY_NAME="Debian 11"\n', "Debian 11"),
        ('ID=ubuntu\nVERSION_CODENAME=noble\nPRETTY_NAME="Ubuntu 24.04"\n', "Ubuntu 24.04"),
        ("", "a system without /etc/os-release"),
    ],
)
def test_releases(monkeypatch, tmp_path, text: str, found: str) -> None:
    (tmp_path / "os-release").write_text(text)
    monkeypatch.setattr(mirrors, "OS_RELEASE", tmp_path / "os-release")
    assert [f"Debian 12 or later (found: {found}): its Slurm packages are what was tried"] == (
        needs.troubles()
    )


@pytest.fixture
def root(monkeypatch) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 0)


def test_everything_that_is_missing_is_said_at_once(root, monkeypatch, capsys) -> None:
    monkeypatch.setattr(needs.shutil, "which", lambda program: program)  # ip may be missing, too
    monkeypatch.setattr(needs, "TRIAL", ["unshare", "--no-such-option"])
    monkeypatch.setattr(needs, "USER_NAMESPACES", ["unshare", "--neither-this"])
    monkeypatch.setattr(needs, "FUSE", Path("/absent/fuse"))
    assert command.main(["up"]) == 2
    message = capsys.readouterr().err
    for part in ("cannot play a cluster. Missing:", "CAP_SYS_ADMIN", "CAP_MKNOD",
                 "no-such-option", "user.max_user_namespaces", "neither-this",
                 "/absent/fuse, with which users mount images"):  # fmt: skip
        assert part in message


@pytest.mark.parametrize("word", ["up", "down"])
def test_not_root_is_said_with_what_was_found(monkeypatch, capsys, word: str) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    assert command.main([word]) == 2
    assert "root (found: user id 1000)" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["upp"], ["stop-node", "node9"], ["exec", "login"]])
def test_wrong_words_end_with_2(words: list[str], capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(words)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_an_output_that_is_lost_is_no_success() -> None:
    line = [sys.executable, str(ROOT / "containers" / "practice"), "--help"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2, "error: cannot print: No space left on device\n"
    )  # fmt: skip
    assert subprocess.run(line, capture_output=True, check=False).returncode == 0


def test_a_place_that_no_cluster_runs_in(root, monkeypatch, capsys) -> None:
    monkeypatch.setenv("HOROSCALE_PRACTICE", "/run/horoscale-nowhere")
    assert command.main(["exec", "node1", "--", "true"]) == 2
    assert "node1 does not run (running: nothing)" in capsys.readouterr().err
    with pytest.raises(SetupError, match="controller does not run"):
        daemons.stop(Place(Path("/run/horoscale-nowhere")), CONTROLLER, "slurmctld")
    assert command.main(["status"]) == 1
    assert "no cluster in /run/horoscale-nowhere" in capsys.readouterr().out
