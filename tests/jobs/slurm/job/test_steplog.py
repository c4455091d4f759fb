"""What Slurm says about a step: every recorded text is understood."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from jobs.slurm.job.step_ranks import StepLog

TRANSCRIPTS = Path(__file__).parent.parent / "transcripts" / "srun"


def read(name: str) -> StepLog:
    log = StepLog()
    for line in (TRANSCRIPTS / f"{name}.err").read_text().splitlines():
        log.read(line)
    for file in sorted(TRANSCRIPTS.glob(f"{name}.rank-*.log")):
        for line in file.read_text().splitlines():
            log.read(line, int(file.stem.rpartition("-")[2]))
    return log


def ends(log: StepLog) -> list[tuple[int, str, int]]:
    return [(end.rank, end.host, end.code) for end in log.ends]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("kill9", [(1, "node2", -9), (0, "node1", -15)]),
        ("segv", [(0, "node1", -signal.SIGSEGV), (1, "node2", -15)]),
        ("term", [(0, "node3", -15), (1, "node4", -15)]),
        ("codes", [(0, "node1", 7), (1, "node1", 7), (2, "node2", 7), (3, "node2", 7)]),
        ("unfinished", [(0, "node3", 85), (1, "node3", 85), (2, "node4", 85), (3, "node4", 85)]),
        ("missing", [(0, "node1", 2), (1, "node2", 2)]),
        ("memory", [(0, "node1", -9), (1, "node2", -9)]),
        ("timelimit", [(1, "node4", -15), (0, "node3", -15)]),
        ("nosuchmpi", []),
    ],
)
def test_who_ended_how_in_the_order_told(name: str, wanted: list[tuple[int, str, int]]) -> None:
    assert ends(read(name)) == wanted


@pytest.mark.parametrize(
    ("name", "aborted"),
    [("kill9", False), ("segv", False), ("term", False), ("codes", False), ("unfinished", False),
     ("missing", False), ("memory", True), ("stepcancel", True), ("jobcancel", True),
     ("timelimit", True), ("srunterm", True), ("power", True)],
)  # fmt: skip
def test_an_end_from_outside_is_told_from_one_after_a_bad_exit(name: str, aborted: bool) -> None:
    """A rank's own bad exit makes Slurm cancel the step, too: that word alone tells nothing."""
    assert read(name).aborted is aborted


def test_a_step_that_slurm_cancelled_says_why() -> None:
    assert read("timelimit").cancelled == "CANCELLED AT 2026-11-21T16:14:17 DUE TO TIME LIMIT"
    assert read("stepcancel").cancelled == "CANCELLED AT 2026-11-21T16:12:50"
    assert read("codes").cancelled is None


def test_memory_names_the_rank_whose_step_used_it() -> None:
    """srun itself names another rank first, which was only ended with the step."""
    log = read("memory")
    assert log.ends[0].rank == 0
    assert log.out_of_memory_rank == 1
    assert log.out_of_memory is not None
    assert log.out_of_memory.startswith("StepId=160.0 exceeded memory limit (427696128 >")


def test_a_node_that_died_is_named() -> None:
    assert read("power").node_failure == "node4"
    assert read("kill9").node_failure is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nosuchmpi", "Invalid MPI type 'nosuch', --mpi=list for acceptable types"),
        ("toomany", "Only allocated 1 nodes asked for 4"),
        ("toogpu", "Unable to create step for job 158: Invalid generic resource (gres) "
                   "specification"),
        ("badoption", "unrecognized option '--nosuchoption'"),
        ("badoutput", "task 0 launch failed: Slurmd could not connect IO"),
        ("launch", "Task launch for StepId=174.0 failed on node node4: Communication connection "
                   "failure"),
    ],
)  # fmt: skip
def test_what_kept_ranks_from_starting(name: str, words: str) -> None:
    assert read(name).launch_failure == words


@pytest.mark.parametrize("name", ["kill9", "codes", "memory", "power", "jobcancel", "missing"])
def test_ranks_that_ran_were_launched(name: str) -> None:
    assert read(name).launch_failure is None


# not to be had on the practice cluster (no cgroups); from Slurm's sources and sites' logs
def test_the_kernels_memory_killer() -> None:
    log = StepLog()
    log.read("srun: error: n7: task 3: Out Of Memory")
    assert ends(log) == [(3, "n7", -signal.SIGKILL)]
    assert log.out_of_memory is not None
    log = StepLog()
    text = "Detected 1 oom_kill event in StepId=5.0. Some of the step tasks have been OOM Killed."
    log.read(f"slurmstepd: error: {text}", 4)
    assert (log.out_of_memory, log.out_of_memory_rank) == (text, 4)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("srun: error: n1: tasks 0,2-4: Exited with exit code 1", [(r, "n1", 1) for r in
                                                                  (0, 2, 3, 4)]),
        ("srun: error: n1: task 5: Segmentation fault (core dumped)", [(5, "n1", -11)]),
        ("srun: error: n1: task 5: Aborted", [(5, "n1", -6)]),
        ("srun: error: n1: task 5: Exited with exit code 137", [(5, "n1", -9)]),
        ("srun: error: n1: task 5: Exited with exit code 255", [(5, "n1", 255)]),
        ("srun: error: n1: task 5: User defined signal 1", [(5, "n1", -10)]),
        ("srun: error: n1: task x: Killed", []),
        ("a rank says: task 5: Killed", []),
        ("", []),
    ],
)  # fmt: skip
def test_forms_of_an_end(line: str, wanted: list[tuple[int, str, int]]) -> None:
    log = StepLog()
    log.read(line)
    assert ends(log) == wanted
