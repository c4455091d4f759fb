"""All ranks of a start as one srun; a small program stands in for srun, a real process."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from jobs.cell.stop import Reason
from jobs.slurm.job import step_ranks as module
from jobs.slurm.job.step_ranks import StepRanks

PRELUDE = """
import os, signal, sys, time
from pathlib import Path
LOGS = Path(sys.argv[1])
def say(text, end="\\n"):
    sys.stderr.write(text + end); sys.stderr.flush()
def rank_says(rank, text):
    with open(LOGS / f"rank-{rank}.log", "a") as out: out.write(text + "\\n")
"""


def started(folder: Path, body: str, size: int = 3) -> StepRanks:
    (folder / "stand_in.py").write_text(PRELUDE + body)
    ranks = StepRanks(folder / "srun.log")
    argv = [sys.executable, "-I", "-S", str(folder / "stand_in.py"), str(folder)]
    ranks.start(argv, dict(os.environ), size)
    return ranks


def never() -> Reason | None:
    return None


def codes(ranks: StepRanks) -> dict[int, tuple[int, bool]]:
    return {rank: (end.code, end.by_us) for rank, end in sorted(ranks.ended.items())}


def test_nothing_started_is_nothing_ended(tmp_path: Path) -> None:
    ranks = StepRanks(tmp_path / "srun.log")
    ranks.end()
    assert (ranks.size, ranks.unended, ranks.bad, ranks.code) == (0, [], {}, None)


def test_a_good_step(tmp_path: Path) -> None:
    ranks = started(tmp_path, "say('srun: a word of no importance')")
    assert ranks.watch(never) is None
    assert ranks.code == 0
    assert codes(ranks) == {0: (0, False), 1: (0, False), 2: (0, False)}


def test_only_the_first_bad_end_was_by_itself(tmp_path: Path) -> None:
    ranks = started(
        tmp_path,
        """
say("srun: error: n2: task 1: Exited with exit code 3")
say("srun: launch/slurm: _step_signal: Terminating StepId=1.0")
say("srun: error: n1: tasks 0,2: Terminated")
sys.exit(3)""",
    )
    ranks.watch(never)
    assert list(ranks.bad) == [1]
    assert codes(ranks) == {0: (-15, True), 1: (3, False), 2: (-15, True)}
    assert ranks.place(1) == "node n2"


def test_ranks_that_end_alike_are_told_in_one_line(tmp_path: Path) -> None:
    body = "say('srun: error: n1: tasks 0-2: Exited with exit code 1'); sys.exit(1)"
    ranks = started(tmp_path, body)
    ranks.watch(never)
    assert codes(ranks) == dict.fromkeys((0, 1, 2), (1, False))


def test_after_a_stop_on_purpose_nobody_is_to_blame(tmp_path: Path) -> None:
    """The first 85 makes srun end the others, whose kills are no faults of theirs."""
    ranks = started(
        tmp_path,
        """
say("srun: error: n1: task 0: Exited with exit code 85")
say("srun: launch/slurm: _step_signal: Terminating StepId=1.0")
say("srun: error: n2: task 1: Killed")
say("srun: error: n3: task 2: Terminated")
sys.exit(137)""",
    )
    ranks.watch(never)
    assert ranks.bad == {}
    assert codes(ranks) == {0: (85, False), 1: (-9, True), 2: (-15, True)}


def test_a_bad_step_without_a_name_blames_nobody(tmp_path: Path) -> None:
    ranks = started(tmp_path, "sys.exit(1)")
    ranks.watch(never)
    assert ranks.bad == {}
    assert ranks.code == 1


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    ranks = started(
        tmp_path,
        """
say("srun: error: n1: task 1: Exi", end=""); (LOGS / "half").touch()
while not (LOGS / "go").exists(): time.sleep(0.02)
say("ted with exit code 4"); time.sleep(30)""",
    )
    while not (tmp_path / "half").exists():
        time.sleep(0.02)
    ranks.poll()
    assert ranks.ended == {}
    (tmp_path / "go").touch()
    deadline = time.monotonic() + 10
    while not ranks.ended and time.monotonic() < deadline:
        ranks.poll()
        time.sleep(0.02)
    assert codes(ranks) == {1: (4, False)}
    ranks.end()


def test_a_last_line_without_its_end_counts(tmp_path: Path) -> None:
    ranks = started(tmp_path, "say('srun: error: n1: task 2: Killed', end=''); sys.exit(137)")
    ranks.watch(never)
    assert list(ranks.bad) == [2]


def test_what_an_earlier_start_left_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "srun.log").write_text("srun: error: n1: task 0: Killed\n")
    (tmp_path / "rank-1.log").write_text("slurmstepd: error: Detected 1 oom_kill event in 1.0\n")
    ranks = started(tmp_path, "")
    ranks.watch(never)
    assert ranks.bad == {}
    assert ranks.said.out_of_memory is None


def test_what_nodes_say_stands_among_the_ranks_output(tmp_path: Path) -> None:
    """A rank's own words are not Slurm's, whatever they are."""
    ranks = started(
        tmp_path,
        """
rank_says(0, "I read about an oom_kill event and Out Of Memory")
rank_says(2, "slurmstepd-n3: error: StepId=1.0 exceeded memory limit (9 > 8), being killed")
say("srun: error: n1: task 0: Killed"); sys.exit(137)""",
    )
    ranks.watch(never)
    assert ranks.said.out_of_memory == "StepId=1.0 exceeded memory limit (9 > 8), being killed"
    assert ranks.said.out_of_memory_rank == 2


def test_end_asks_first(tmp_path: Path) -> None:
    ranks = started(
        tmp_path,
        """
def end(*_):
    say("srun: forcing job termination"); say("srun: error: n1: tasks 0-2: Killed"); sys.exit(137)
signal.signal(signal.SIGTERM, end); (LOGS / "ready").touch(); time.sleep(60)""",
    )
    told = Reason("cancelled", "got SIGTERM")
    assert ranks.watch(lambda: told if (tmp_path / "ready").exists() else None) == told
    assert ranks.code == 137
    assert ranks.bad == {}, "ends that we asked for are nobody's fault"
    assert ranks.unended == []


def test_a_deaf_srun_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KILL_AFTER_S", 0.5)
    ranks = started(
        tmp_path,
        """
signal.signal(signal.SIGTERM, signal.SIG_IGN); (LOGS / "ready").touch(); time.sleep(60)""",
    )
    while not (tmp_path / "ready").exists():
        time.sleep(0.02)
    ranks.end()
    assert ranks.code == -9
    assert ranks.bad == {}


def test_a_step_that_lives_on_after_a_bad_exit_is_ended(tmp_path: Path) -> None:
    ranks = started(
        tmp_path,
        """
say("srun: error: n2: task 1: Exited with exit code 3"); time.sleep(60)""",
    )
    ranks.grace_s = 0.5
    assert ranks.watch(never) is None
    assert codes(ranks) == {0: (-9, True), 1: (3, False), 2: (-9, True)}


def test_ends_of_ranks_that_do_not_exist_are_not_counted(tmp_path: Path) -> None:
    ranks = started(tmp_path, "say('srun: error: n1: task 9: Killed'); sys.exit(1)")
    ranks.watch(never)
    assert sorted(ranks.ended) == [0, 1, 2]
