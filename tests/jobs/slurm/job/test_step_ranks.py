"""All ranks of a start as one srun: a line of shell stands in for it, a real process.

Recorded texts of a real srun: test_step_failure.
"""

from __future__ import annotations

import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.stop import Reason, Stop
from jobs.slurm.job.step_ranks import RankEnd, StepLog, StepRanks


def started(folder: Path, script: str, size: int = 3) -> StepRanks:
    """``script``: shell, in the folder of the logs; what it prints is srun's."""
    ranks = StepRanks(folder / "srun.log")
    ranks.start(["sh", "-c", f"cd {folder}\n{script}"], {}, size)
    return ranks


def codes(ranks: StepRanks) -> dict[int, tuple[int, bool]]:
    return {rank: (end.code, end.by_us) for rank, end in sorted(ranks.ended.items())}


def test_nothing_started_is_nothing_ended(tmp_path: Path) -> None:
    ranks = StepRanks(tmp_path / "srun.log")
    ranks.end()
    assert (ranks.size, ranks.unended, ranks.bad, ranks.code) == (0, [], {}, None)


#: What srun prints, its exit code, and code and cause (by us) of each rank.
ENDS: dict[str, tuple[str, int, dict[int, tuple[int, bool]]]] = {
    "a good step": (
        "srun: a word of no importance", 0, {0: (0, False), 1: (0, False), 2: (0, False)}
    ),
    # the first 85 makes srun end the others, whose kills are no faults of theirs
    "after a stop on purpose nobody is to blame": (
        """srun: error: n1: task 0: Exited with exit code 85
srun: launch/slurm: _step_signal: Terminating StepId=1.0
srun: error: n2: task 1: Killed
srun: error: n3: task 2: Terminated""",
        137, {0: (85, False), 1: (-9, True), 2: (-15, True)},
    ),
    "a bad step without a name blames nobody": (
        "", 1, {0: (-9, True), 1: (-9, True), 2: (-9, True)}
    ),
    "ranks that do not exist are not counted": (
        "srun: error: n1: task 9: Killed", 1, {0: (-9, True), 1: (-9, True), 2: (-9, True)}
    ),
    "a last line without its end counts": (
        "srun: error: n1: task 2: Killed", 137, {0: (-9, True), 1: (-9, True), 2: (-9, False)}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_how_ranks_end(tmp_path: Path, case: str) -> None:
    text, code, wanted = ENDS[case]
    ranks = started(tmp_path, f"printf %s {shlex.quote(text)}; exit {code}")
    assert ranks.watch(lambda: None) is None
    assert (ranks.code, codes(ranks)) == (code, wanted)
    blamed = [rank for rank, (ended, by_us) in wanted.items() if ended not in (0, 85) and not by_us]
    assert list(ranks.bad) == blamed
    assert all(ranks.place(rank) == f"node {end.host}" for rank, end in ranks.said.ends.items())


def test_half_a_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    ranks = started(
        tmp_path,
        "printf 'srun: error: n1: task 1: Exi'; touch half\n"
        "until [ -e go ]; do sleep 0.02; done; echo 'ted with exit code 4'; sleep 30",
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


def test_what_an_earlier_start_left_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "srun.log").write_text("srun: error: n1: task 0: Killed\n")
    (tmp_path / "rank-1.log").write_text("slurmstepd: error: Detected 1 oom_kill event in 1.0\n")
    ranks = started(tmp_path, "")
    ranks.watch(lambda: None)
    assert ranks.bad == {}
    assert ranks.said.out_of_memory is None


def test_what_nodes_say_stands_among_the_ranks_output(tmp_path: Path) -> None:
    """A rank's own words are not Slurm's, whatever they are."""
    ranks = started(
        tmp_path,
        "echo 'I read about an oom_kill event and Out Of Memory' > rank-0.log\n"
        "echo 'slurmstepd-n3: error: StepId=1.0 exceeded memory limit (9 > 8), being killed' > "
        "rank-2.log\necho 'srun: error: n1: task 0: Killed'; exit 137",
    )
    ranks.watch(lambda: None)
    assert ranks.said.out_of_memory == "StepId=1.0 exceeded memory limit (9 > 8), being killed"
    assert ranks.said.out_of_memory_rank == 2


def test_end_asks_first(tmp_path: Path) -> None:
    ranks = started(
        tmp_path,
        "trap \"echo 'srun: error: n1: tasks 0-2: Killed'; exit 137\" TERM\n"
        "touch ready; while :; do sleep 0.1; done",
    )
    ranks.term_s = 60.0
    told = Reason("cancelled", "got SIGTERM")
    assert ranks.watch(lambda: told if (tmp_path / "ready").exists() else None) == told
    assert ranks.code == 137
    assert ranks.bad == {}, "ends that we asked for are nobody's fault"
    assert ranks.unended == []


def test_a_deaf_srun_is_killed_when_its_time_is_over(tmp_path: Path) -> None:
    ranks = StepRanks(tmp_path / "srun.log", term_s=0.2)
    line = ["sh", "-c", "while :; do sleep 0.1; done"], dict[str, str]()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited: deaf from the first moment
    try:
        stopped = ranks.run(line, 3, Stop(), limit_s=0.5)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped is not None and stopped.status == "timeout"
    assert (ranks.code, ranks.bad, ranks.unended) == (-9, {}, [])


def log(*ends: tuple[int, str, int], **facts: Any) -> StepLog:
    """``ends``: rank, host and code, in the order reported."""
    return StepLog({rank: RankEnd(host, code) for rank, host, code in ends}, **facts)


OOM = "Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed."


@pytest.mark.parametrize(
    ("line", "rank", "wanted"),
    [
        ("srun: error: n1: tasks 0,2-4: Exited with exit code 1", None,
         log((0, "n1", 1), (2, "n1", 1), (3, "n1", 1), (4, "n1", 1))),
        ("srun: error: n1: task 5: Segmentation fault (core dumped)", None, log((5, "n1", -11))),
        ("srun: error: n1: task 5: Exited with exit code 137", None, log((5, "n1", -9))),
        ("srun: error: n1: task 5: Exited with exit code 255", None, log((5, "n1", 255))),
        ("srun: error: n1: task 5: User defined signal 1", None, log((5, "n1", -10))),
        ("srun: error: n1: task x: Killed", None, log()),
        ("a rank says: task 5: Killed", None, log()),
        ("tracer: error: no MPI plugin, Out Of Memory, Node failure on n3", None, log()),
        ("error: n1: task 5: Killed", None, log()),
        # the kernel's memory killer, from Slurm's sources and sites' logs: no cgroups here
        (f"slurmstepd: error: {OOM}", 4, log(out_of_memory=OOM, out_of_memory_rank=4)),
        ("srun: error: n7: task 3: Out Of Memory", None,
         log((3, "n7", -9), out_of_memory="n7: task 3: Out Of Memory", out_of_memory_rank=3)),
    ],
)  # fmt: skip
def test_forms_of_a_line(line: str, rank: int | None, wanted: StepLog) -> None:
    read = StepLog()
    read.read(line, rank)
    assert read == wanted


def test_srun_names_the_rank_after_it_spoke_of_memory() -> None:
    read = StepLog()
    for line in (f"srun: error: {OOM}", "srun: error: n7: task 3: Out Of Memory"):
        read.read(line)
    assert (read.out_of_memory, read.out_of_memory_rank) == (OOM, 3)
