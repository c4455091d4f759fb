"""What counts as uncommitted: code that decides results, and nothing next to it; and what differs
between ranks."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import pytest

from tests.builders import config
from tests.sweeps import ROOT
from train.run.provenance import git_state, provenance_here, slurm_job_id, unequal


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOROSCALE_GIT_COMMIT", raising=False)
    folder = tmp_path / "checkout"
    for name in ("train/__main__.py", "train/step/train_step.py", "jobs/sweeps/a.yaml", "README"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("one\n")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        _git(folder, *words)
    return folder


def _git(folder: Path, *words: str) -> None:
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, *words], check=True)


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        (None, False),
        ("train/step/train_step.py", True),
        ("train/step/new.py", True),
        ("jobs/sweeps/a.yaml", True),
        ("jobs/sweeps/mine.yaml", False),
        ("README", False),
        ("notes.txt", False),
    ],
)
def test_only_code_makes_it_dirty(checkout: Path, name: str | None, dirty: bool) -> None:
    if name:
        (checkout / name).write_text("two\n")
    commit, found = git_state(checkout)
    assert commit is not None and len(commit) == 40 and found is dirty


def test_a_repository_around_the_code_or_under_it_is_another_project(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: a release that was unpacked in another project had its commit in all records."""
    inner = checkout / "downloads" / "horoscale"
    (inner / "train").mkdir(parents=True)
    (inner / "train" / "__main__.py").write_text("one\n")
    assert git_state(inner) == (None, None)
    _git(checkout, "add", "-A")
    assert git_state(inner) == (None, None), "though it is tracked there"
    _git(checkout, "rm", "-rqf", "train", "downloads")
    _git(checkout, "commit", "-qm", "another project")
    (checkout / "train").mkdir()
    (checkout / "train" / "__main__.py").write_text("one\n")
    assert git_state(checkout) == (None, None), "over the top of it"
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) == (None, None), "no repository at all"


def test_what_a_shell_or_a_home_folder_says_to_git_changes_nothing(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook works on another repository; a gitignore of home would hide new code."""
    commit, _ = git_state(checkout)
    _git(tmp_path, "init", "-q", "other")
    other = tmp_path / "other"
    for name, value in (
        ("GIT_DIR", other / ".git"), ("GIT_WORK_TREE", other), ("GIT_INDEX_FILE", other / "none"),
        ("HOME", tmp_path),
    ):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    (tmp_path / "ignored").write_text("*.py\n")
    (tmp_path / ".gitconfig").write_text(f"[core]\nexcludesFile = {tmp_path}/ignored\n")
    assert git_state(checkout) == (commit, False)
    (checkout / "train" / "new.py").write_text("")
    assert git_state(checkout) == (commit, True)


def test_a_checkout_whose_repository_is_elsewhere(checkout: Path, tmp_path: Path) -> None:
    commit, _ = git_state(checkout)
    _git(checkout, "worktree", "add", "-q", str(place := tmp_path / "place"))
    assert (place / ".git").is_file()
    assert git_state(place) == (commit, False)


def test_git_is_asked_in_two_processes_of_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOROSCALE_GIT_COMMIT", raising=False)
    started, run = [], subprocess.run

    def counted(argv: list[str], **how: object) -> object:
        started.append(argv[0])
        return run(argv, **how)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", counted)
    assert git_state(ROOT)[0] is not None and started == ["git", "git"]
    collected = provenance_here(config(), (), asks_git=False)
    assert (collected.git_commit, started.count("git")) == (None, 2)


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


def test_a_job_is_called_as_squeue_calls_it() -> None:
    shell = {"SLURM_JOB_ID": "14"}
    assert slurm_job_id(shell) is None, "of salloc, on a login node"
    job = shell | {"SLURMD_NODENAME": "n1"}
    assert (slurm_job_id({}), slurm_job_id(job)) == (None, "14")
    assert slurm_job_id(job | {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "0"}) == "12_0"


@pytest.mark.tf
def test_each_rank_collects_what_its_record_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROSCALE_GPUS_HERE", "2")
    assert provenance_here(config(), ()).unused_gpus == 2, "which the ranks do not use"
    found = provenance_here(config(seed=3), ("NVIDIA H200",))
    assert found.versions["horovod"] == "0.28.1, patched: yield"
    assert found.versions["python"] == platform.python_version() and found.seeds == {"run": 3}
    assert found.gpu == "NVIDIA H200" and found.unused_gpus is None and found.cpu


def test_facts_that_differ_between_ranks() -> None:
    ranks = [{"gpu": gpu, "driver": "535"} for gpu in ("A100", "V100", "A100")]
    assert unequal(ranks) == {"gpu": {"A100": (0, 2), "V100": (1,)}}
    del ranks[1]["driver"]
    assert unequal(ranks)["driver"] == {"535": (0, 2), "none": (1,)}
    assert unequal(ranks[:1]) == {}


#: Rank 1 pretends another GPU and another driver.
MIXED = """
import os
from dataclasses import replace
from tests.builders import config, record
from train.distributed.launch import read_launch
from train.distributed.world import start
from train.run.provenance import describe_world

launch = read_launch(os.environ)
runtime = replace(start(config(gpus=2), launch), gpus=(("V100", "A100")[launch.rank],))
from tensorflow.python.framework.config import is_op_determinism_enabled
own = record(config()).provenance.model_copy(update={"driver": ("535", "525")[launch.rank]})
world, provenance = describe_world(runtime, own)
print(world.device_kind, world.device, provenance.driver, provenance.unequal, sep="; ")
assert is_op_determinism_enabled(), "as the config asks"
"""


@pytest.mark.ranks2
def test_ranks_on_different_gpus_are_in_the_record_of_all(start_ranks, tmp_path: Path) -> None:
    """Seen: the record held rank 0's GPU alone; the same nodes in another order were a change."""
    (program := tmp_path / "mixed.py").write_text(MIXED)
    differing = {"driver": {"535": (0,), "525": (1,)}, "gpu": {"V100": (0,), "A100": (1,)}}
    for out in start_ranks([program], 2):
        assert out.splitlines()[-1] == f"gpu; 1 x A100, 1 x V100; 535; {differing}"
