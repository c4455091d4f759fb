"""What Slurm and the container say of a step's end that its ranks cannot, and what a job knows."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from jobs.cell.failure import End, cause_of
from jobs.cell.ranks import Ended
from jobs.cell.stop import Reason, Stop
from jobs.config.site import Site
from jobs.slurm.job import step_failure as module
from jobs.slurm.job.allocation import Allocation
from jobs.slurm.job.step_failure import container_failure, verdict, why_stopped
from jobs.slurm.job.step_ranks import StepRanks

SRUN = Path(__file__).parent.parent / "transcripts" / "srun"
SITE = Site(ranks_per_node=1, signal_s=90)
JOB = Allocation("7_5", 0, 2e9, SITE)
STOP = Stop(told=Reason("cancelled", "got SIGTERM"))


def replayed(cell: Path, name: str, code: int = 1, size: int = 2) -> StepRanks:
    """A step that prints what a recorded one did."""
    logs = cell / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    ranks = StepRanks(logs / "srun.log")
    of_ranks = [f"cat {SRUN / name}.rank-{n}.log > {logs}/rank-{n}.log" for n in range(size)]
    script = " 2>/dev/null; ".join([*of_ranks, f"cat {SRUN / name}.err >&2; exit {code}"])
    ranks.start(["sh", "-c", script], {}, size)
    ranks.watch(lambda: None)
    return ranks


def failed(cell: Path, rank: int, *, consequence: bool) -> None:
    error = {"what": "w", "where": "x", "what_to_do": "y", "rank": rank, "log_tail": []}
    told = {"at": datetime.now(UTC).isoformat(), "consequence": consequence, "error": error}
    (cell / "logs").mkdir(parents=True, exist_ok=True)
    (cell / "logs" / f"rank-{rank}.error.json").write_text(json.dumps(told))


#: Name and srun's exit code -> status, place, the beginning of what happened, and the rank.
RECORDED: dict[tuple[str, int], tuple[str, str, str, int | None]] = {
    ("power", 1): ("lost", "node node4", "a node failed (node4)", None),
    ("memory", 137): ("failed", "node node2", "out of memory: StepId=160.0 exceeded memory", 1),
    ("nosuchmpi", 1): ("failed", "srun", "srun could not start the ranks: Invalid MPI type", None),
    ("badoutput", 0): ("failed", "srun", "srun could not start the ranks: task 0 launch", None),
    ("launch", 1): ("failed", "srun", "srun could not start the ranks: Task launch for "
                    "StepId=174.0 failed on node node4: Communication connection failure", None),
    ("toomany", 1): ("failed", "srun", "srun could not start the ranks: Only allocated 1", None),
    ("badoption", 1): ("failed", "srun", "srun could not start the ranks: unrecognized", None),
    # as a controller that was restarted says, too
    ("toogpu", 1): ("lost", "srun", "srun could not start the ranks: Unable to create step", None),
    ("away", 1): ("lost", "srun", "srun could not start the ranks: Unable to", None),
    ("missing", 2): ("failed", "node node1", "the container of rank 0 did not start on node node1: "
                     "/nowhere/python3: No such file or directory", 0),
    ("stepcancel", 137): ("cancelled", "the step", "Slurm ended the ranks and not the job", None),
    ("jobcancel", 143): ("cancelled", "the step", "Slurm ended the ranks and not the job", None),
    ("srunterm", 137): ("cancelled", "the step", "Slurm ended the ranks and not the job", None),
    ("timelimit", 143): ("timeout", "the step", "Slurm ended the ranks and not the job", None),
    # Slurm knows no more than the ranks
    ("kill9", 143): ("failed", "rank 1 on node node2", "rank 1 was ended by SIGKILL", 1),
    ("segv", 143): ("failed", "rank 0 on node node1", "rank 0 was ended by SIGSEGV", 0),
    ("codes", 7): ("failed", "rank 0 on node node1", "rank 0 ended with exit code 7", 0),
    ("term", 143): ("failed", "rank 0 on node node3", "rank 0 was ended by SIGTERM", 0),
    ("unfinished", 85): ("failed", "the ranks", "all ranks ended well, yet there is no", 0),
}  # fmt: skip


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case[0])
def test_recorded_ends_become_failures(tmp_path: Path, case: tuple[str, int]) -> None:
    ranks = replayed(tmp_path, *case)
    status, error = cause_of(End(tmp_path, ranks, launcher=lambda: verdict(tmp_path, ranks, JOB)))
    wanted = RECORDED[case]
    assert (status, error.where, error.rank) == (wanted[0], wanted[1], wanted[3])
    assert error.what.startswith(wanted[2])


def test_whose_word_counts_most(tmp_path: Path) -> None:
    failed(tmp_path, 1, consequence=False)
    for slurms in ("memory", "missing"):
        assert verdict(tmp_path, replayed(tmp_path, slurms), JOB) is None, "a rank's own error"
    found = verdict(tmp_path, replayed(tmp_path, "power"), JOB)
    assert found is not None and found[0] == "lost", "a node that is dead"


def test_ranks_that_vanish_while_others_complain_are_lost(tmp_path, monkeypatch) -> None:
    """The node died; Slurm notices only later, when the step was ended long ago."""
    monkeypatch.setattr(Allocation, "not_answering", lambda _: ["n2"])
    failed(tmp_path, 0, consequence=True)
    ranks = replayed(tmp_path, "codes", size=4)
    ranks.said.ends = {0: ranks.said.ends[0]}
    ranks.ended = {0: Ended(1, 0.0, False)}
    ranks.asked_at = 1.0
    found = verdict(tmp_path, ranks, JOB)
    assert found is not None and found[0] == "lost"
    words = "rank 1, 2, 3 vanished: no node reported its end; Slurm does not reach: n2"
    assert words in found[1].what and found[1].where == "node n2"
    assert "write sbatch: {exclude: 'n2'} in the site file" in found[1].what_to_do


def test_words_of_a_rank_are_not_the_containers(tmp_path: Path) -> None:
    (tmp_path / "rank-0.log").write_text("a rank says: FATAL: nothing\n")
    assert container_failure(tmp_path / "rank-0.log") is None


def test_a_rank_that_lived_had_its_container(tmp_path: Path) -> None:
    ranks = replayed(tmp_path, "missing")
    for rank in (0, 1):
        (tmp_path / "logs" / f"rank-{rank}.beat").write_text("{}")
    assert verdict(tmp_path, ranks, JOB) is None


def stopped(stop: Stop, warned_at: float | None = None, job: Allocation = JOB) -> Any:
    return why_stopped(None, StepRanks(Path("srun.log")), job, stop, Stop(at=warned_at))


def test_why_a_job_is_being_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stopped(STOP).status == "cancelled", "there is no Slurm to ask"
    near = stopped(STOP, job=replace(JOB, ends_at=time.time() + 3))
    assert near.status == "timeout", "this close to the time limit nobody is asked"
    monkeypatch.setattr(Allocation, "not_answering", lambda _: ["n2"])
    assert stopped(STOP).status == "lost", "also where Slurm does not show the job"


@pytest.mark.parametrize(
    ("shown", "down", "nodes"),
    [("JobState=NODE_FAIL", [], "NAME"), ("JobState=NODE_FAIL", ["n2"], "n2"),
     ("JobState=COMPLETING", ["n2"], "n2"), ("", [], "node4")],
)  # fmt: skip
def test_every_loss_gives_the_line_that_excludes_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str, down: list[str], nodes: str
) -> None:
    """The last one: a job that was requeued, and srun could not reach the same dead node."""
    monkeypatch.setattr(Allocation, "not_answering", lambda _: down)
    monkeypatch.setattr(Allocation, "shown", lambda _: shown)
    job = replace(JOB, nodes="n[2-3]", restarts=1)
    if shown:
        status, text = stopped(STOP, job=job).status, stopped(STOP, job=job).text
    else:
        status, error = verdict(tmp_path, replayed(tmp_path, "launch"), job)
        text = error.what_to_do
    assert status == "lost" and f"write sbatch: {{exclude: '{nodes}'}} in the site file" in text


def test_a_node_failure_without_its_name_names_no_node(tmp_path: Path) -> None:
    ranks = replayed(tmp_path, "codes")
    ranks.said.read("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED DUE TO NODE FAILURE ***")
    found = verdict(tmp_path, ranks, JOB)
    assert found is not None and "exclude" not in found[1].what_to_do
    ranks.said.read("srun: error: Node failure on n2")
    found = verdict(tmp_path, ranks, JOB)
    assert found is not None and "{exclude: 'n2'}" in found[1].what_to_do


def test_a_signal_that_is_on_its_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    ranks, began = StepRanks(Path("srun.log")), time.monotonic()
    ranks.said.aborted = True
    assert why_stopped(None, ranks, JOB, Stop(), Stop()) is None
    assert 0.2 < time.monotonic() - began < 30


def test_a_warning_long_before_the_time_limit_is_a_preemption() -> None:
    assert stopped(Stop(), time.time()).status == "preempted"
    assert stopped(Stop(), JOB.ends_at - 90 - 60) is None, "Slurm may be a minute early"


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        ("JobState=COMPLETING Reason=None PreemptTime=2026-11-21T15:00:00", "preempted"),
        ("JobState=RUNNING Reason=Preempted PreemptTime=None", "preempted"),
        ("JobState=NODE_FAIL Reason=NodeDown PreemptTime=None", "lost"),
        ("JobState=TIMEOUT Reason=TimeLimit", "timeout"),
        ("JobState=OUT_OF_MEMORY Reason=OutOfMemory", "failed"),
        ("JobState=CANCELLED Reason=None PreemptTime=None", "cancelled"),
        ("JobState=COMPLETING Reason=None", None),
        ("JobState=RUNNING PreemptTime=None", None),
        ("", None),
    ],
)
def test_slurms_word_for_an_end(monkeypatch, shown: str, status: str | None) -> None:
    """That a job can be preempted, from some time on, is no preemption."""
    line = f"JobId=12 JobName=n {shown} PreemptEligibleTime=2026-11-21T15:00:00 Partition=p"
    monkeypatch.setattr(Allocation, "shown", lambda _: line)
    reason = stopped(STOP)
    assert (reason.status if reason.text.startswith("Slurm ended job 7_5: ") else None) == status


def test_what_the_environment_says() -> None:
    environment = {
        "SLURM_JOB_ID": "12",
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "0",
        "SLURM_RESTART_COUNT": "2",
        "SLURM_JOB_END_TIME": "1800000000",
        "SLURM_JOB_NODELIST": "n[1-2]",
    }
    assert Allocation.read(environment, 10, SITE) == Allocation("7_0", 2, 1.8e9, SITE, "n[1-2]")


def test_what_older_slurms_do_not_say() -> None:
    allocation = Allocation.read({"SLURM_JOB_ID": "12"}, 10, SITE)
    assert (allocation.job, allocation.restarts) == ("12", 0)
    assert allocation.ends_at == pytest.approx(time.time() + 600, abs=5)


def test_an_early_warning_of_the_time_limit_is_no_hurry() -> None:
    """Slurm is up to a minute early; a preemption has no time to lose."""
    now = time.time()
    at_limit = Allocation("7_5", 0, now + 120, SITE)
    warned_at = at_limit.ends_at - 90 - 60
    assert not at_limit.is_early(warned_at) and not at_limit.is_due(warned_at)
    assert Allocation("7_5", 0, now + 89, SITE).is_due(warned_at)
    preempted = Allocation("7_5", 0, now + 3600, SITE)
    assert preempted.is_early(now) and preempted.is_due(now)


def test_nodes_that_slurm_does_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Shutting down.\nn1|mixed\nn2|allocated*\nn3|down\nn3|down\nn4|drained\n"
    monkeypatch.setattr(Allocation, "ask", lambda *_: text)
    assert Allocation("7", 0, 2e9, SITE, "n[1-4]").not_answering() == ["n2", "n3"]
