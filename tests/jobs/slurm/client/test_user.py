"""Root's commands go on as the practice cluster's user, where they concern that user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jobs.config.site import load_site
from jobs.slurm.client import user
from jobs.slurm.client.user import become_owner, hand_over, is_anothers


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of the new process."""
    calls: list[str] = []
    monkeypatch.setattr(user, "become", calls.append)
    return calls


@pytest.mark.parametrize(
    ("owner", "euid", "becomes"),
    [("practice", 0, True), ("practice", 1001, False), ("ada", 0, False), ("root", 0, False),
     (KeyError("getpwuid(): uid not found: 4711"), 0, False), (FileNotFoundError(), 0, False)],
)  # fmt: skip
def test_root_asks_as_the_practice_user_only_about_its_sweeps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, became: list[str], owner, euid: int,
    becomes: bool,
) -> None:  # fmt: skip
    """On a real login node, root looks at anybody's sweep as root."""

    def of(_: Path) -> str:
        if isinstance(owner, Exception):
            raise owner
        return owner

    monkeypatch.setattr(Path, "owner", of)
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    become_owner(tmp_path / "sweep")
    assert bool(became) == becomes


@pytest.mark.parametrize(
    ("site", "euid", "anothers"), [("practice", 0, True), ("practice", 7, False), ("cpu", 0, False)]
)
def test_only_root_goes_on_as_a_sites_user(monkeypatch, site: str, euid: int, anothers) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    assert is_anothers(load_site(site)) == anothers


def test_folders_are_handed_over_with_the_command(tmp_path: Path, monkeypatch) -> None:
    """containers/practice does it (tests/containers/test_users.py)."""
    calls: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, argv: calls.append(argv))
    monkeypatch.setattr(os, "chdir", lambda _: None)
    monkeypatch.setattr("sys.argv", ["jobs", "sweep", "a b"])
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\nuser: ann\n")
    hand_over(load_site(str(tmp_path / "s.yaml")), tmp_path / "results", tmp_path / "preflight")
    ((python, program, *words),) = calls
    assert program.endswith("containers/practice") and python == sys.executable
    given = ["--give", str(tmp_path / "results"), "--give", str(tmp_path / "preflight")]
    run = ["--", sys.executable, "-m", "jobs", "sweep", "a b"]
    assert words == ["login", "--user", "ann", *given, *run]
