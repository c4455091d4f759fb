"""Slurm's words in plain ones: why a job waits (recorded, and written by hand), and what a refusal
of sbatch is taken for.
"""

from __future__ import annotations

import pytest

from jobs.slurm.client.reasons import in_words, is_submit_limit, is_unnamed_limit
from jobs.slurm.client.run import is_away
from jobs.slurm.client.squeue import JobState, parse
from tests.jobs.slurm.client.clusters import SAID

FAILED = "sbatch: error: Batch job submission failed: "
POLICY = f"{FAILED}Job violates accounting/QOS policy"
ANY_LIMIT = f"{POLICY} (job submit limit, user's size and/or time limits)"


def test_every_recorded_job_that_waits_has_a_reason() -> None:
    """In each transcript."""
    seen = set()
    for file in SAID.glob("*.out"):
        for job in parse(file.read_text()).values():
            if job.waits:
                seen.add(job.reason)
                assert in_words(job), job
    assert {"JobArrayTaskLimit", "DependencyNeverSatisfied", "BeginTime", "JobHeldUser",
            "PartitionTimeLimit"} <= seen  # fmt: skip


@pytest.mark.parametrize(
    ("state", "reason", "part"),
    [
        ("PENDING", "DependencyNeverSatisfied", "make cancel, then make sweep"),
        ("PENDING", "Dependency", "another job has to end first"),
        ("PENDING", "QOSMaxJobsPerUserLimit", "Slurm says: QOSMaxJobsPerUserLimit"),
        ("PENDING", "launch failed requeued held", "scontrol release 7_1"),
        ("PENDING", "SomethingOfSlurm29 {x}", "Slurm says: SomethingOfSlurm29 {x}"),
        ("REQUEUE_HOLD", "", "release 7_1"),
        ("SUSPENDED", "", "Slurm says: SUSPENDED"),
        ("EXPEDITING", "", "Slurm says: EXPEDITING"),
        *((usual, "", "") for usual in ("PENDING", "RUNNING", "COMPLETED")),
    ],
)
def test_reasons_by_their_beginning_and_unusual_states(state: str, reason: str, part: str) -> None:
    words = in_words(JobState("7_1", state, reason))
    assert part in words and bool(words) == bool(part)


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (f"QOSMaxSubmitJobPerUserLimit {ANY_LIMIT}", True),
        (ANY_LIMIT, True),
        (f"AssocMaxSubmitJobLimit {POLICY}", True),
        (POLICY, True),
        ("sbatch: error: Maximum of 10 nodes per job. Submit to partition large instead", False),
        ("sbatch: error: the maximum job time is 24 h: submit again with less", False),
        ("sbatch: error: SubmitJobs.lua: name a project", False),
        ("sbatch: error: AssocGrpSubmitJobsLimit", True),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit {ANY_LIMIT}", False),
        (f"sbatch: error: QOSMaxNodePerJobLimit {ANY_LIMIT}", False),
        (f"sbatch: error: MaxNodePerAccount {ANY_LIMIT}", False),
        (f"sbatch: error: MaxSubmitJobsPerAccount {ANY_LIMIT}", True),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)", False),
        (f"{FAILED}Invalid job array specification", False),
        ("sbatch: error: lua: teaching is over", False),
    ],
)
def test_arrays_are_cut_for_a_limit_on_jobs_alone(said: str, limit: bool) -> None:
    assert not is_away(said)
    assert (is_submit_limit(said) or is_unnamed_limit(said)) == limit


def test_what_passes() -> None:
    assert is_away(f"{FAILED}Slurm temporarily unable to accept job, sleeping and retrying")
    assert is_away(f"{FAILED}Resource temporarily unavailable")
