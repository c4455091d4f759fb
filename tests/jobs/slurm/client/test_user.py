"""Root's commands go on as the practice cluster's user, where they concern that user."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.config.site import load_site
from jobs.slurm.client import user
from jobs.slurm.client.user import become_owner, give, hand_over, is_anothers

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """In place of the new process."""
    calls: list[str] = []
    monkeypatch.setattr(user, "become", lambda: calls.append("became"))
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


@needs_root
def test_folders_are_handed_over_with_the_command(tmp_path: Path, became: list[str]) -> None:
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\nuser: nobody\n")
    folders = (tmp_path / "results", tmp_path / "preflight")
    hand_over(load_site(str(tmp_path / "s.yaml")), *folders)
    assert [folder.owner() for folder in folders] == ["nobody"] * 2 and became == ["became"]
    (tmp_path / "s.yaml").write_text("ranks_per_node: 1\nuser: nobody-here\n")
    with pytest.raises(user.ConfigError, match="there is no user 'nobody-here'"):
        hand_over(load_site(str(tmp_path / "s.yaml")), *folders)


@needs_root
def test_links_are_given_and_never_what_they_lead_to(tmp_path: Path) -> None:
    """The results belong to the user, so a link of that user may lead anywhere."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").touch()
    given = tmp_path / "given"
    (given / "deep").mkdir(parents=True)
    (given / "deep" / "file").touch()
    (given / "link").symlink_to(mine)
    (given / "deep" / "link").symlink_to(mine / "file")
    give(given, 65534, 65534)
    owned = [p.lstat().st_uid for p in (given, *given.rglob("*"))]
    assert owned == [65534] * 5
    assert mine.stat().st_uid == (mine / "file").stat().st_uid == 0
