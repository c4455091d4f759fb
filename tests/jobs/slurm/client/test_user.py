"""Root's commands go on as the practice cluster's user, where they concern that user."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from jobs.__main__ import app
from jobs.config.site import SITES, load_site, own_sites
from jobs.plan import datasets
from jobs.slurm.client import detect, user
from jobs.slurm.client.user import become_owner, hand_over
from tests.jobs.slurm.fakes import FakeSlurm


@pytest.mark.parametrize(
    ("owner", "euid", "becomes"),
    [("practice", 0, True), ("practice", 1001, False), ("ada", 0, False), ("root", 0, False),
     (KeyError("getpwuid(): uid not found: 4711"), 0, False), (FileNotFoundError(), 0, False)],
)  # fmt: skip
def test_root_asks_as_the_practice_user_only_about_its_sweeps(monkeypatch, owner, euid, becomes):
    """On a real login node, root looks at anybody's sweep as root."""
    calls: list[str] = []
    monkeypatch.setattr(user, "_become", calls.append)  # in place of the new process
    monkeypatch.setattr(Path, "owner", Mock(side_effect=[owner]))
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    become_owner(Path("sweep"))
    assert bool(calls) == becomes


def options(monkeypatch, name: str, *folders: Path, data: Path | None = None, euid: int = 0):
    """What the program that changes the user is asked; nothing: the command goes on as it is."""
    calls: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, argv: calls.append(argv))
    monkeypatch.setattr(os, "chdir", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: euid)
    monkeypatch.setattr("sys.argv", ["jobs", "sweep", "a b", "--site", name])
    hand_over(load_site(name), *folders, data=data)
    return calls[0] if calls else []


@pytest.mark.parametrize("where", ["root's own", "a path", "the installation's"])
def test_root_goes_on_from_the_beginning_with_the_same_site(tmp_path, monkeypatch, where) -> None:
    """containers/practice does it (tests/containers/test_users.py). Seen: a name of root's own site
    file was sought among the user's."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    name, file = {
        "root's own": ("mine", own_sites() / "mine.yaml"),
        "a path": (str(tmp_path / "s.yaml"), tmp_path / "s.yaml"),
        "the installation's": ("practice", SITES / "practice.yaml"),
    }[where]
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("ranks_per_node: 1\nuser: practice\n")
    data = tmp_path / "data"
    python, program, *words = options(monkeypatch, name, tmp_path / "results", data=data)
    assert program.endswith("containers/practice") and python == sys.executable
    given = ["--read", str(file), "--make", str(data), "--give", str(tmp_path / "results")]
    run = ["--", sys.executable, "-m", "jobs", "sweep", "a b", "--site", name]
    assert words == ["login", "--user", "practice", *given, *run, "--site", str(file)]
    assert options(monkeypatch, name, tmp_path, euid=1001) == [], "only root"


def test_a_plan_needs_no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("ranks_per_node: 1\nuser: nobody-of-that-name\n")
    assert options(monkeypatch, str(file), tmp_path / ".prepared") == []
    sweep = options(monkeypatch, str(file), tmp_path, data=tmp_path)
    assert sweep != [], "a sentence names what is missing"
    file.write_text("ranks_per_node: 1\n")
    assert options(monkeypatch, str(file), tmp_path) == []


def test_nothing_is_prepared_before(fake: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: root prepared the data, in folders that the user can write."""
    monkeypatch.setattr(detect, "hand_over", Mock(side_effect=Became))
    monkeypatch.setattr(datasets, "_fetched", lambda *_: pytest.fail("root prepares data"))
    for command in ("sweep", "preflight", "interconnect", "plan"):
        monkeypatch.setattr("sys.argv", ["jobs", command])
        arguments = [] if command == "interconnect" else ["smoke"]
        with pytest.raises(Became):
            app([command, *arguments, "--site", "practice"], standalone_mode=False)
    assert fake.calls() == [], "nor is Slurm asked"


class Became(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, ...]]:
    """What root's commands make the user's before they go on as that user."""
    calls: list[tuple[Path, ...]] = []

    def hand(_: object, *folders: Path, **__: object) -> None:
        calls.append(folders)
        raise Became

    monkeypatch.setattr(detect, "hand_over", hand)
    return calls


def test_a_plan_makes_no_folder_that_it_does_not_fill(
    given: list[tuple[Path, ...]], tmp_path: Path
) -> None:
    """Seen: root's plan of a published data set left an empty results/.prepared of the user's."""
    own = tmp_path / "pets.yaml"
    own.write_text(
        "dataset: folder:pets\nmodel: cnn\ntechnique: naive\ngpus: 1\nepochs: 1\n"
        "batch_per_rank: 8\n"
    )
    for sweep in ("smoke", str(own)):
        with pytest.raises(Became):
            app(["plan", sweep, "--site", "practice", "--results", str(tmp_path)],
                standalone_mode=False)  # fmt: skip
    assert given == [(), (tmp_path / ".prepared",)]


@pytest.mark.parametrize("command", ["sweep", "preflight", "interconnect"])
def test_a_folder_is_given_by_the_name_that_root_was_told(
    given: list[tuple[Path, ...]], tmp_path: Path, command: str
) -> None:
    """containers/users.py refuses links of others. Seen: they were followed before it looked, so
    that a link from the user's results to a folder of root's had a folder made there."""
    (tmp_path / "roots").mkdir()
    (tmp_path / "link").symlink_to("roots")
    arguments = [command, *([] if command == "interconnect" else ["smoke"])]
    with pytest.raises(Became):
        app([*arguments, "--site", "practice", "--results", str(tmp_path / "link")],
            standalone_mode=False)  # fmt: skip
    assert given[0] and all(path.is_relative_to(tmp_path / "link") for path in given[0])
