"""Shared by all tests: the checkout's root on the path, and real ranks for those marked ranks2."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

from jobs.cell.launch import core_groups
from tests.practice import cluster, open_folder, practice_user, shared_folder, sif
from tests.pretend_hosts import ended
from tests.sweeps import executable, ranks_here
from train.program.environment import NOTHING, enter

__all__ = ["cluster", "open_folder", "practice_user", "shared_folder", "sif"]
pytest_plugins = ["tests.bare", "tests.invariants"]

# tests and what they start see no more of a developer's shell and dot files than the programs do
enter("command", os.environ)
os.environ["KERAS_HOME"] = NOTHING
# how long an example takes is a matter of what else the machine does
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Started in the background or under nohup, a process ignores signals, and so do its children;
    tests that send them need children that hear them."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
        (signal.SIGTERM, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on the practice cluster mostly wait: one worker takes them, from the beginning, while
    others do the rest, with tests that start clusters of their own; of the rest those that start
    ranks come first, so that none is left alone at the end."""
    for item in items:
        if "practice_user" in _fixtures(item):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slurm"):
            group = "cluster" if "cluster" in _fixtures(item) else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_turn)


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _turn(item: pytest.Item) -> int:
    """The longest first, which says itself that it may take long, and last those that may wait for
    an image that is being built."""
    limit = item.get_closest_marker("timeout")
    if "sif" in _fixtures(item):
        return 4
    if "cluster" in _fixtures(item):
        return 0
    if limit and limit.args[0] > 1200:
        return 1
    return 2 if item.get_closest_marker("ranks2") else 3


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Two workers on one cluster would break each other's tests; xdist says nothing if its groups
    do not work."""
    parallel = "PYTEST_XDIST_WORKER" in os.environ
    if parallel and os.geteuid() == 0:  # the cluster's tests, which are root's, take the longest
        os.setpriority(os.PRIO_PROCESS, 0, 0 if item.get_closest_marker("slurm") else 10)
    if parallel and item.get_closest_marker("slurm") and "@" not in item.nodeid:
        pytest.fail("tests of the practice cluster need one worker: run pytest --dist loadgroup")


@pytest.fixture(scope="session")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of prepared data sets for the whole session."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a shell script into a folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(name: str, script: str = "") -> Path:
        (folder / name).unlink(missing_ok=True)  # it may be a link to a tool of this machine
        return executable(folder / name, f"#!/bin/sh\n{script}\n")

    return write


@pytest.fixture
def start_ranks(tmp_path: Path) -> Callable[[Sequence[str], int], list[str]]:
    """Run a command as n real Horovod ranks over Gloo, as the supervisor would; returns outputs."""

    def start(command: Sequence[str], size: int, timeout_s: float = 600) -> list[str]:
        cores = core_groups(size, 1, sorted(os.sched_getaffinity(0)))
        folder = tmp_path / f"ranks-{time.monotonic_ns()}"
        found = ended(ranks_here(folder, command, cores), timeout_s)
        for rank, (code, _, errors) in enumerate(found):
            assert code == 0, f"rank {rank}: {errors[-3000:]}"
        return [out for _, out, _ in found]

    return start
