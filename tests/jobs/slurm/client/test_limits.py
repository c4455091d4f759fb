"""What a refusal of sbatch is taken for, and which key it names."""

from __future__ import annotations

import pytest

from jobs.slurm.client.limits import advice, is_passing, is_submit_limit, limit_in

FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "key"),
    [
        (f"QOSMaxSubmitJobPerUserLimit {FAILED}Job violates accounting/QOS policy (job submit "
         "limit, user's size and/or time limits)", "submit_limit:"),
        (f"AssocMaxSubmitJobLimit {FAILED}Job violates accounting/QOS policy", "submit_limit:"),
        ("sbatch: error: AssocGrpSubmitJobsLimit", "submit_limit:"),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit {FAILED}Job violates accounting/QOS policy "
         "(job submit limit, user's size and/or time limits)", "time_min"),
        (f"sbatch: error: QOSMaxNodePerJobLimit {FAILED}Job violates accounting/QOS policy (job "
         "submit limit, user's size and/or time limits)", "max_nodes"),
        (f"{FAILED}Requested time limit is invalid (missing or exceeds some limit)", "time_min"),
        (f"{FAILED}Invalid account or account/partition combination specified", "account"),
        ("sbatch: error: You must specify an account", "account"),
        (f"{FAILED}Invalid qos specification", "qos"),
        (f"{FAILED}Invalid partition name specified", "partition"),
        (f"{FAILED}User's group not permitted to use this partition", "partition"),
        (f"{FAILED}Requested node configuration is not available", "ranks_per_node"),
        (f"{FAILED}Invalid generic resource (gres) specification", "gpu_type"),
        (f"{FAILED}Memory required by task is not available", "mem_per_rank_gb"),
        (f"{FAILED}Invalid feature specification", "constraint"),
        (f"{FAILED}Requested reservation is invalid", "reservation"),
        (f"{FAILED}Invalid wckey specification", "wckey"),
        (f"{FAILED}Invalid job array specification", "array_limit"),
        (f"{FAILED}More processors requested than permitted", "cpus_per_rank"),
        ("sbatch: error: lua: teaching is over", "ask the site's administrators"),
    ],
)  # fmt: skip
def test_a_refusal_is_permanent_and_names_its_key(said: str, key: str) -> None:
    assert not is_passing(said)
    assert key in advice(said, "jobs/sites/x.yaml")


@pytest.mark.parametrize(
    "said",
    ["Unable to contact slurm controller (connect failure)", "Socket timed out on send/recv",
     "Slurm temporarily unable to accept job, sleeping and retrying",
     "Resource temporarily unavailable"],
)  # fmt: skip
def test_what_passes(said: str) -> None:
    assert is_passing(f"{FAILED}{said}")


def test_a_dependency_that_is_gone_is_made_anew() -> None:
    assert "make sweep again" in advice(f"{FAILED}Job dependency problem", "x")


@pytest.mark.parametrize(
    ("said", "limit"),
    [("QOSMaxSubmitJobPerUserLimit: at most 20 jobs", 20), ("job submit limit of 300 reached", 300),
     ("Maximum number of submitted jobs is 50", 50), ("QOSMaxSubmitJobPerUserLimit", None),
     ("Requested time limit is invalid: maximum 60", None)],
)  # fmt: skip
def test_the_number_of_a_limit(said: str, limit: int | None) -> None:
    assert limit_in(said) == limit
    assert is_submit_limit(said) == (limit is not None or "MaxSubmit" in said)
