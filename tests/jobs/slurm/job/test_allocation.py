"""What a batch job knows of itself, and why it is being ended."""

from __future__ import annotations

import os
import signal
import time

import pytest

from jobs.cell.stop import Reason, Stop
from jobs.slurm.job import allocation as module
from jobs.slurm.job.allocation import (
    Allocation,
    is_due,
    reason_in,
    warned_by_signal,
    warned_why,
    why,
)

STOP = Stop(told=Reason("cancelled", "got SIGTERM"))


def job(left_s: float = 3600, signal_s: float = 90) -> Allocation:
    return Allocation("7_5", "n1", 0, time.time() + left_s, None, signal_s)


def test_what_the_environment_says() -> None:
    told = {
        "SLURM_JOB_ID": "12",
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "0",
        "SLURMD_NODENAME": "n1",
        "SLURM_RESTART_COUNT": "2",
        "SLURM_JOB_END_TIME": "1800000000",
    }
    found = Allocation.read(told, 10, "/c", 5)
    assert found == Allocation("7_0", "n1", 2, 1.8e9, "/c", 5)


def test_what_older_slurms_do_not_say() -> None:
    found = Allocation.read({"SLURM_JOB_ID": "12"}, 10, None)
    assert (found.job, found.restarts) == ("12", 0)
    assert found.ends_at == pytest.approx(time.time() + 600, abs=5)


def test_outside_a_job() -> None:
    with pytest.raises(KeyError):
        Allocation.read({}, 10, None)


@pytest.mark.parametrize(
    ("told", "status"),
    [
        ("JobState=COMPLETING Reason=None PreemptTime=2026-11-21T15:00:00", "preempted"),
        ("JobState=RUNNING Reason=Preempted PreemptTime=None", "preempted"),
        ("JobState=NODE_FAIL Reason=NodeDown PreemptTime=None", "lost"),
        ("JobState=TIMEOUT Reason=TimeLimit", "timeout"),
        ("JobState=OUT_OF_MEMORY Reason=OutOfMemory", "failed"),
        ("JobState=CANCELLED Reason=None PreemptTime=None", "cancelled"),
    ],
)
def test_slurms_word_for_an_end(told: str, status: str) -> None:
    found = reason_in(f"JobId=12 JobName=n {told} Partition=p", "7_5")
    assert found is not None
    assert found.status == status


@pytest.mark.parametrize("told", ["JobState=COMPLETING Reason=None", "JobState=RUNNING", ""])
def test_what_tells_nothing(told: str) -> None:
    """That a job can be preempted, from some time on, is no preemption."""
    assert (
        reason_in(f"{told} PreemptEligibleTime=2026-11-21T15:00:00 PreemptTime=None", "7") is None
    )


def test_without_a_signal_there_is_no_reason() -> None:
    assert why(job(), Stop(), step_cancelled=False) is None


def test_a_signal_that_is_on_its_way_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    began = time.monotonic()
    assert why(job(), Stop(), step_cancelled=True) is None
    assert 0.2 < time.monotonic() - began < 30


def test_the_time_limit_needs_no_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = why(job(left_s=3), STOP, step_cancelled=False)
    assert found is not None and found.status == "timeout"


def test_where_slurm_gives_no_answer_the_signal_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert why(job(), STOP, step_cancelled=False) == STOP.reason


def test_when_a_warning_is_no_time_limit() -> None:
    told = job(left_s=3600)
    assert warned_why(told, time.time()) == Reason(
        "preempted", "Slurm warned job 7_5 long before its time was over"
    )
    assert warned_why(told, told.ends_at - 90) is None
    assert warned_why(told, told.ends_at - 90 - 60) is None, "Slurm may be a minute early"


def test_an_early_warning_of_the_time_limit_is_no_hurry() -> None:
    """Slurm is up to a minute early; a preemption has no time to lose."""
    told = job(left_s=120, signal_s=90)
    at = told.ends_at - 150
    assert not is_due(told, at, at + 1)
    assert is_due(told, at, told.ends_at - 89)
    assert is_due(job(left_s=3600), time.time(), time.time())


def test_the_first_warning_counts_and_nothing_is_ended() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with warned_by_signal() as warned:
        assert warned.at is None
        os.kill(os.getpid(), signal.SIGUSR2)
        first = warned.at
        os.kill(os.getpid(), signal.SIGUSR2)
        assert first is not None and warned.at == first
    assert signal.getsignal(signal.SIGUSR2) == before
