"""What counts as uncommitted: code that decides results, and nothing beside it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from train.run.provenance import _versions, git_state, slurm_job_id, unused_gpus


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOROSCALE_GIT_COMMIT", raising=False)
    folder = tmp_path / "checkout"
    for name in (
        "train/__main__.py",
        "train/step/train_step.py",
        "jobs/sweeps/a.yaml",
        "README.md",
    ):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("one\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        _git(folder, *words)
    return folder


def _git(folder: Path, *words: str) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, *words], check=True)


def test_a_clean_checkout(checkout: Path) -> None:
    commit, dirty = git_state(checkout)
    assert commit is not None and len(commit) == 40 and dirty is False


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        ("train/step/train_step.py", True),
        ("train/new.py", True),
        ("train/step/new.py", True),
        ("jobs/sweeps/a.yaml", True),
        ("jobs/sweeps/mine.yaml", False),
        ("README.md", False),
        ("notes.txt", False),
    ],
)
def test_only_code_makes_it_dirty(checkout: Path, name: str, dirty: bool) -> None:
    (checkout / name).write_text("two\n")
    assert git_state(checkout)[1] is dirty


def test_no_checkout_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROSCALE_GIT_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) == (None, None)


@pytest.mark.parametrize("tracked", [True, False])
def test_the_repository_around_a_checkout_is_another_project(checkout: Path, tracked: bool) -> None:
    """Seen: a release that was unpacked below another repository had its commit in all records."""
    inner = checkout / "downloads" / "horoscale"
    (inner / "train").mkdir(parents=True)
    (inner / "train" / "one.py").write_text("one\n")
    if tracked:
        _git(checkout, "add", "-A")
        _git(checkout, "commit", "-qm", "two")
    assert git_state(inner) == (None, None)


def test_a_release_over_the_top_of_another_project(checkout: Path) -> None:
    """Seen: it had the other project's commit."""
    _git(checkout, "rm", "-rq", "train")
    _git(checkout, "commit", "-qm", "another project")
    (checkout / "train").mkdir()
    (checkout / "train" / "__main__.py").write_text("one\n")
    assert git_state(checkout) == (None, None)


@pytest.mark.parametrize("kind", ["worktree", "submodule"])
def test_a_checkout_whose_repository_is_elsewhere(checkout: Path, tmp_path: Path, kind) -> None:
    commit, _ = git_state(checkout)
    place = tmp_path / "outer" / "inner"
    if kind == "worktree":
        _git(checkout, "worktree", "add", "-q", str(place))
    else:
        _git(tmp_path, "init", "-q", "outer")
        local = ("-c", "protocol.file.allow=always")
        _git(place.parent, *local, "submodule", "--quiet", "add", str(checkout), place.name)
    assert (place / ".git").is_file()
    assert git_state(place) == (commit, False)


def test_inside_an_image_the_supervisor_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROSCALE_GIT_COMMIT", "abc")
    monkeypatch.setenv("HOROSCALE_GIT_DIRTY", "1")
    assert git_state(tmp_path) == ("abc", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_checkout_of_another_user_is_read(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git refuses such a checkout unless it is told that it is trusted."""
    monkeypatch.delenv("SUDO_UID", raising=False)
    commit, _ = git_state(checkout)
    for file in [checkout, *checkout.rglob("*")]:
        os.chown(file, 12345, 12345)
    plain = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    assert subprocess.run(plain, capture_output=True, check=False).returncode != 0
    assert git_state(checkout) == (commit, False)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_JOB_ID": "12"}, "12"),
        ({"SLURM_JOB_ID": "14", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}, "12_0"),
        ({}, None),
    ],
)
def test_a_job_is_called_as_squeue_calls_it(environment, expected) -> None:
    assert slurm_job_id(environment) == expected


def test_a_record_says_how_horovod_was_built() -> None:
    assert _versions()["horovod"] == "0.28.1, patched: yield"


def test_the_record_says_how_many_gpus_stayed_unused() -> None:
    assert unused_gpus(None, {"HOROSCALE_GPUS_HERE": "2"}) == 2
    assert unused_gpus("NVIDIA H200", {"HOROSCALE_GPUS_HERE": "2"}) is None
    assert unused_gpus(None, {}) is None
