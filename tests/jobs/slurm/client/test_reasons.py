"""Slurm's words in plain ones: why a job waits (recorded, and written by hand), and what a refusal
of sbatch is taken for.
"""

from __future__ import annotations

import pytest

from jobs.slurm.client.reasons import (
    _MEANING,
    advice,
    in_words,
    is_passing,
    is_submit_limit,
    limit_in,
)
from jobs.slurm.client.squeue import JobState, parse
from tests.jobs.slurm.client.clusters import SAID

FAILED = "sbatch: error: Batch job submission failed: "


def waiting(reason: str, state: str = "PENDING") -> JobState:
    return JobState("7_1", state, reason)


def test_every_recorded_reason_has_a_meaning() -> None:
    """In each transcript: no waiting job is explained by Slurm's word alone."""
    seen = set()
    for file in SAID.glob("*.out"):
        for job in parse(file.read_text()):
            if job.waits:
                seen.add(job.reason)
                assert in_words(job) and "Slurm says" not in in_words(job), job
    assert {"JobArrayTaskLimit", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser",
            "PartitionTimeLimit"} <= seen  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "down, drained or reserved (n[1-2])"),
        ("ReqNodeNotAvail, Reserved for maintenance", "(Reserved for maintenance)"),
        ("ReqNodeNotAvail", "nodes that it needs are down, drained or reserved"),
        ("QOSMaxJobsPerUserLimit", "as many of your jobs run as the QoS allows"),
        ("AssocGrpBillingMinutes", "used up its budget"),
        ("launch failed requeued held", "scontrol release 7_1"),
        ("SomethingOfSlurm29", "Slurm says: SomethingOfSlurm29"),
    ],
)
def test_reasons_by_their_beginning(reason: str, part: str) -> None:
    assert part in in_words(waiting(reason))


def test_unusual_states_are_explained_and_usual_ones_are_not() -> None:
    assert in_words(waiting("", "RUNNING")) == "" and in_words(waiting("", "COMPLETED")) == ""
    assert in_words(waiting("", "SUSPENDED")).startswith("suspended")
    assert in_words(waiting("", "EXPEDITING")) == "Slurm says: EXPEDITING"
    assert "release 7_1" in in_words(waiting("", "REQUEUE_HOLD"))


def test_no_row_hides_a_later_one() -> None:
    starts = [start for start, _ in _MEANING]
    for number, start in enumerate(starts):
        hidden = [later for later in starts[number + 1 :] if later.startswith(start)]
        assert not hidden, f"{start} hides {hidden}"


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (f"QOSMaxSubmitJobPerUserLimit {FAILED}Job violates accounting/QOS policy (job submit "
         "limit, user's size and/or time limits)", "submit_limit:"),
        (f"{FAILED}Job violates accounting/QOS policy (job submit limit, user's size and/or time "
         "limits)", "submit_limit, time_min and max_nodes"),
        (f"AssocMaxSubmitJobLimit {FAILED}Job violates accounting/QOS policy", "submit_limit:"),
        ("sbatch: error: AssocGrpSubmitJobsLimit", "submit_limit:"),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit {FAILED}Job violates accounting/QOS policy "
         "(job submit limit, user's size and/or time limits)", "time_min"),
        (f"sbatch: error: QOSMaxNodePerJobLimit {FAILED}Job violates accounting/QOS policy (job "
         "submit limit, user's size and/or time limits)", "max_nodes"),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)", "time_min"),
        (f"{FAILED}Invalid account or account/partition combination specified", "account"),
        (f"{FAILED}Invalid qos specification", "qos"),
        (f"{FAILED}User's group not permitted to use this partition", "partition"),
        (f"{FAILED}Requested node configuration is not available", "ranks_per_node"),
        (f"{FAILED}Invalid generic resource (gres) specification", "gpu_type"),
        (f"{FAILED}Memory required by task is not available", "mem_per_rank_gb"),
        (f"{FAILED}Invalid feature specification", "constraint"),
        (f"{FAILED}Requested reservation is invalid", "reservation"),
        (f"{FAILED}Invalid wckey specification", "wckey"),
        (f"{FAILED}Invalid job array specification", "array_limit"),
        (f"{FAILED}More processors requested than permitted", "cpus_per_rank"),
        (f"{FAILED}Job dependency problem", "make sweep again"),
        ("sbatch: error: lua: teaching is over", "ask the site's administrators"),
    ],
)  # fmt: skip
def test_a_refusal_is_permanent_and_names_its_key(said: str, key: str) -> None:
    assert not is_passing(said)
    assert key in advice(said, "jobs/sites/x.yaml")


@pytest.mark.parametrize(
    "said",
    ["Unable to contact slurm controller (connect failure)",
     "Slurm temporarily unable to accept job, sleeping and retrying",
     "Resource temporarily unavailable"],
)  # fmt: skip
def test_what_passes(said: str) -> None:
    assert is_passing(f"{FAILED}{said}")


@pytest.mark.parametrize(
    ("said", "limit"),
    [("QOSMaxSubmitJobPerUserLimit: at most 20 jobs", 20), ("job submit limit of 300 reached", 300),
     ("Maximum number of submitted jobs is 50", 50), ("QOSMaxSubmitJobPerUserLimit", None),
     ("Requested time limit is invalid: maximum 60", None)],
)  # fmt: skip
def test_the_number_of_a_limit(said: str, limit: int | None) -> None:
    assert limit_in(said) == limit
    assert is_submit_limit(said) == (limit is not None or "MaxSubmit" in said)
