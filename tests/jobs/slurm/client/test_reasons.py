"""Reasons in plain words: recorded ones from the transcripts, others written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.slurm.client.reasons import _MEANING, in_words
from jobs.slurm.client.squeue import JobState, parse

SAID = Path(__file__).parent.parent / "transcripts" / "queue"


def waiting(reason: str, state: str = "PENDING") -> JobState:
    return JobState("7_1", state, reason, None, "0:00", "", "x")


def test_every_recorded_reason_has_a_meaning() -> None:
    """In each transcript: no waiting job is explained by Slurm's word alone."""
    seen = set()
    for file in SAID.glob("*.out"):
        if file.name.startswith(("scontrol", "sacct")):
            continue
        for job in parse(file.read_text()):
            if job.waits:
                seen.add(job.reason)
                assert in_words(job) and "Slurm says" not in in_words(job), job
    assert {"JobArrayTaskLimit", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser",
            "PartitionTimeLimit"} <= seen  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("Priority", "other jobs come first"),
        ("Resources", "become free"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "down, drained or reserved (n[1-2])"),
        ("ReqNodeNotAvail, Reserved for maintenance", "(Reserved for maintenance)"),
        ("ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"),
        ("QOSMaxJobsPerUserLimit", "as many of your jobs run as the QoS allows"),
        ("QOSGrpGRES", "all jobs of the QoS together"),
        ("AssocGrpGRESMinutes", "all jobs of the account together"),
        ("AssocGrpBillingMinutes", "used up its budget"),
        ("launch failed requeued held", "scontrol release 7_1"),
        ("BadConstraints", "make cancel and make sweep again"),
        ("PartitionDown", "ask the site"),
    ],
)
def test_common_reasons_of_sites(reason: str, part: str) -> None:
    assert part in in_words(waiting(reason))


def test_an_unknown_reason_is_told_as_it_is() -> None:
    assert in_words(waiting("SomethingOfSlurm29")) == "Slurm says: SomethingOfSlurm29"


def test_states_that_are_odd_are_told_and_usual_ones_are_not() -> None:
    assert in_words(waiting("", "RUNNING")) == "" and in_words(waiting("", "COMPLETED")) == ""
    assert in_words(waiting("", "SUSPENDED")).startswith("suspended")
    assert in_words(waiting("", "EXPEDITING")) == "Slurm says: EXPEDITING"
    assert "release 7_1" in in_words(waiting("", "REQUEUE_HOLD"))


def test_no_row_hides_a_later_one() -> None:
    starts = [start for start, _ in _MEANING]
    for number, start in enumerate(starts):
        hidden = [later for later in starts[number + 1 :] if later.startswith(start)]
        assert not hidden, f"{start} hides {hidden}"
