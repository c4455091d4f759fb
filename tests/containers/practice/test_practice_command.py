"""The command line: wrong words, and a machine that cannot play a cluster."""

from __future__ import annotations

import pytest

from containers.practice import command, needs
from containers.practice.place import PracticeError

DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'


@pytest.mark.parametrize(
    ("text", "good"),
    [
        (DEBIAN, True),
        ("ID=debian\nPRETTY_NAME=trixie/sid\n", True),
        (DEBIAN.replace("12", "11"), False),
        ('ID=ubuntu\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04"\n', False),
        ("", False),
    ],
)
def test_releases(text: str, good: bool) -> None:
    trouble = needs.release_trouble(text)
    assert (trouble is None) is good
    if trouble:
        assert "expected" in trouble or "Debian 12 or later (found:" in trouble


def test_only_missing_packages_are_installed_and_the_database_only_when_asked_for() -> None:
    nothing = needs.missing_packages(accounting=False, which=lambda _: None)
    assert {"slurmctld", "slurmd", "slurm-client", "munge", "iproute2"} <= set(nothing)
    assert len(nothing) == len(set(nothing))
    assert "mariadb-server" not in nothing
    assert "mariadb-server" in needs.missing_packages(accounting=True, which=lambda _: None)


def test_everything_that_is_missing_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 0)
    monkeypatch.setattr(needs, "release_trouble", lambda _: "Debian 12 or later (found: X)")
    monkeypatch.setattr(needs, "NAMESPACES", ["unshare", "--no-such-option"])
    monkeypatch.setattr(needs, "DEVICES", ["unshare", "--neither-this"])
    assert command.main(["up"]) == 2
    said = capsys.readouterr().err
    assert "cannot play a cluster. Missing:" in said
    assert "Debian 12 or later (found: X)" in said
    assert "CAP_SYS_ADMIN" in said and "no-such-option" in said
    assert "CAP_MKNOD" in said and "neither-this" in said


def test_not_root_is_said_with_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    assert command.main(["up"]) == 2
    assert "root (found: user id 1000)" in capsys.readouterr().err
    for words in (["down"], ["stop-node", "node1"], ["exec", "node1", "--", "true"]):
        assert command.main(words) == 2
        assert "needs root" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["upp"], ["stop-node", "node9"], ["exec", "login"]])
def test_wrong_words_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command.main(words)
    assert caught.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_accounting_is_a_switch() -> None:
    assert [command.wants_accounting(told) for told in ("0", "", "1")] == [False, False, True]
    with pytest.raises(PracticeError, match="ACCOUNTING=yes found, expected ACCOUNTING=1"):
        command.wants_accounting("yes")


def test_a_place_that_no_cluster_runs_in(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.os, "geteuid", lambda: 0)
    monkeypatch.setenv("HOROSCALE_PRACTICE", "/run/horoscale-nowhere")
    assert command.main(["exec", "node1", "--", "true"]) == 2
    assert "node1 does not run (running: nothing)" in capsys.readouterr().err
    assert command.main(["status"]) == 1
    assert "no cluster in /run/horoscale-nowhere" in capsys.readouterr().out
