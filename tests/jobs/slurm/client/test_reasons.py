"""Slurm's words in plain ones: why a job waits (recorded, and written by hand), and what a refusal
of sbatch is taken for.
"""

from __future__ import annotations

import pytest

from jobs.slurm.client.reasons import in_words, is_submit_limit, is_unnamed_limit, refusal_in
from jobs.slurm.client.run import Answer
from jobs.slurm.client.squeue import JobState, parse
from tests.jobs.slurm.client.clusters import SAID
from tests.jobs.slurm.fakes import CLOSING

POLICY = (
    f"{CLOSING}Job violates accounting/QOS policy (job submit limit, user's size and/or time "
    "limits)"
)


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
        ("PENDING", "PartitionNodeLimit", "PartitionNodeLimit: its partition does not have"),
        ("PENDING", "BadConstraints", "BadConstraints: its partition does not have"),
        ("PENDING", "PartitionNodeLimit", "or nodes that it needs are down or drained"),
        ("PENDING", "PartitionTimeLimit", "scancel --state=PENDING 7 and make sweep again"),
        ("PENDING", "JobHoldMaxRequeue", "scancel 7_1 and make sweep again"),
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
    # it ends all jobs of the sweep, also those that may still start
    assert "make cancel" not in words or reason == "DependencyNeverSatisfied"


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{POLICY}", True),
        (f"sbatch: error: lua: teaching is over\n{POLICY}", True),
        (POLICY, True),
        (f"sbatch: error: AssocGrpSubmitJobsLimit\n{POLICY}", True),
        (f"sbatch: error: MaxSubmitJobsPerAccount\n{POLICY}", True),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{POLICY}", False),
        (f"sbatch: error: QOSMaxNodePerJobLimit\n{POLICY}", False),
        (f"sbatch: error: MaxNodePerAccount\n{POLICY}", False),
        (f"{CLOSING}Requested time limit is invalid (missing or exceeds some limit)", False),
        (f"{CLOSING}Invalid job array specification", False),
    ],
)
def test_arrays_are_cut_for_a_limit_on_jobs_alone(said: str, limit: bool) -> None:
    refusal = refusal_in(Answer(1, "", said))
    assert (is_submit_limit(refusal) or is_unnamed_limit(refusal)) == limit
