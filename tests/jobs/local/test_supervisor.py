"""Rank processes are started, watched and ended, helpers too; none is left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.cell.stop import Reason
from jobs.local.supervisor import Ranks
from tests.sweeps import wait_until
from train.record.cell_folder import EXIT_UNFINISHED

STOP = Reason("cancelled", "a test")
Start = Callable[[str], None]


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    running = Ranks()
    yield running
    running.end()


@pytest.fixture
def start(ranks: Ranks, tmp_path: Path) -> Start:
    """Start the next rank as a shell script."""

    def begin(script: str) -> None:
        rank = len(ranks.processes)
        ranks.start(["/bin/sh", "-c", script], dict(os.environ), tmp_path / f"{rank}.log")

    return begin


def gone(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def number_in(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text().strip(), str(file))
    return int(file.read_text())


def test_peers_have_the_grace_to_say_what_they_saw(
    ranks: Ranks, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ranks, "grace_s", 60.0)
    start(f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; exit 3")
    start("exit 4")
    start(f"exit {EXIT_UNFINISHED}")
    ranks.watch(lambda: (tmp_path / "go").touch() if 1 in ranks.ended else None)
    assert [(rank, end.code) for rank, end in ranks.bad.items()] == [(1, 4), (0, 3)], "in order"
    assert ranks.bad[1].at < ranks.bad[0].at


def test_a_reason_is_heard_even_if_all_ranks_ended_with_it(ranks: Ranks, start: Start) -> None:
    """A machine that goes down sends SIGTERM to the ranks and to the supervisor at once."""
    start("kill -TERM $$")
    wait_until(lambda: gone(ranks.processes[0].pid), "the rank's end")
    assert ranks.watch(lambda: STOP) == STOP


def test_a_rank_deaf_to_sigterm_is_killed_and_a_stopped_one_hears_it(
    ranks: Ranks, start: Start, tmp_path: Path
) -> None:
    start(f"trap '' TERM; echo $$ > {tmp_path}/deaf; while :; do sleep 0.1; done")
    start("kill -STOP $$; sleep 60")
    number_in(tmp_path / "deaf")
    stopped = Path(f"/proc/{ranks.processes[1].pid}/status")
    wait_until(lambda: "\nState:\tT" in stopped.read_text(), "the stop")
    ranks.signal(signal.SIGTERM)  # as end() does, however long it takes to be heard
    wait_until(lambda: ranks.poll() or 1 in ranks.ended, "the end of the stopped one")
    ranks.end()
    codes = {rank: end.code for rank, end in ranks.ended.items()}
    assert codes == {0: -signal.SIGKILL, 1: -signal.SIGTERM}
    assert list(ranks.bad) == [1], "the other was asked to"


@pytest.mark.parametrize("end", ["exit 0", "kill -9 $$", "sleep 60"])
def test_helpers_end_with_their_rank(ranks: Ranks, start: Start, tmp_path: Path, end: str) -> None:
    start(f"sleep 60 & echo $! > {tmp_path}/helper; {end}")
    helper = number_in(tmp_path / "helper")
    if end == "sleep 60":
        ranks.end()
    else:
        ranks.watch(lambda: None)
    wait_until(lambda: gone(helper), "the helper's end")
