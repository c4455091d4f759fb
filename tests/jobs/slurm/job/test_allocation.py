"""What a batch job knows of itself, of its nodes, and of the warnings that it gets."""

from __future__ import annotations

import time

import pytest

from jobs.config.site import Site
from jobs.slurm.job.allocation import Allocation

SITE = Site(ranks_per_node=1, signal_s=90)


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
    text = "Welcome to this cluster!\nn1 mixed\nn2 allocated*\nn3 down\nn3 down\nn4 drained\n"
    monkeypatch.setattr(Allocation, "ask", lambda *_: text)
    assert Allocation("7", 0, 2e9, SITE, "n[1-4]").not_answering() == ["n2", "n3"]
