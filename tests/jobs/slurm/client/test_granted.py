"""What Slurm grants a user: how many jobs in the queue. Accounts and partitions: test_propose."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.site import Site
from jobs.slurm.client import granted as module
from jobs.slurm.client.granted import submit_limit
from jobs.slurm.client.run import Answer


def site(**changes: Any) -> Site:
    return Site(**{"ranks_per_node": 2, **changes})


def test_the_smallest_limit_on_submitted_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "User,DefaultAccount": "Welcome to Big\nme|lab",
        "User,DefaultQOS": "me|long",
        "MaxSubmitJobs,": "|40",
        "MaxSubmitJobsPerUser": "30||0",
        "partition": "PartitionName=p QoS=night",
    }
    asked: list[str] = []

    def run(argv: Any, **_: Any) -> Answer:
        asked.append(" ".join(argv))
        return Answer(0, next(text for key, text in answers.items() if key in asked[-1]), "")

    monkeypatch.setattr(module, "run", run)
    assert submit_limit("QOSMaxSubmitJobPerUserLimit", site(partition="p"), "big") == 30
    assert "name=long,night" in asked[-1]
    assert "account=lab" in asked[-2] and "cluster=big" in asked[-2]
    assert submit_limit("QOSMaxSubmitJobPerUserLimit: at most 20 jobs", site(partition="p")) == 20
    monkeypatch.setattr(module, "run", lambda *_, **__: Answer(1, "", "no accounts"))
    assert submit_limit("job submit limit of 300 reached", site()) == 300
    assert submit_limit("QOSMaxSubmitJobPerUserLimit", site()) is None
