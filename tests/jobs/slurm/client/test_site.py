"""What a cluster cannot do is said before anything is submitted, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.site import NodeLayout, Site
from jobs.slurm.client import site as module
from jobs.slurm.client.nodes import SINFO
from jobs.slurm.client.run import Answer
from jobs.slurm.client.site import check_site, submit_limit
from tests.jobs.slurm.client.clusters import Recorded
from train.errors import ConfigError


def site(**changes: Any) -> Site:
    return Site(**{"ranks_per_node": 2, "time_min": 30, "array_limit": 50, **changes})


PRACTICE = site(partition="practice", gpus="gres")
GPU = site(partition="gpu", gpus="gres", ranks_per_node=8)


def refusal(
    cluster: str | Recorded, asked: Site, *layouts: NodeLayout, minutes: int = 30
) -> list[str]:
    ask = Recorded(cluster) if isinstance(cluster, str) else cluster
    with pytest.raises(ConfigError) as caught:
        check_site(asked, layouts, ask, minutes=minutes)
    first, *lines = str(caught.value).split("\n  ")
    assert first == "the cluster cannot run this; nothing was submitted:"
    return lines


def test_what_fits_passes_with_one_question_to_each_program() -> None:
    ask = Recorded("practice")
    shapes = [NodeLayout(nodes, ranks) for nodes in (1, 4) for ranks in (1, 2)]
    # Slurm itself must say what a formula of features selects
    for asked in (PRACTICE, PRACTICE.model_copy(update={"constraint": "ib|opa"})):
        ask.asked.clear()
        assert check_site(asked, shapes, ask, minutes=30) == ()
        assert ask.asked == ["sinfo", "config"]


def test_without_a_partition_there_must_be_a_default_one() -> None:
    assert check_site(site(), [NodeLayout(2, 2)], Recorded("declared"), minutes=30) == ()
    sinfo = Recorded("declared")(SINFO).replace("small*", "small")
    (line,) = refusal(Recorded("declared", sinfo=sinfo), site(), NodeLayout(1, 1))
    assert "no default partition: set partition: to one of small," in line


@pytest.mark.parametrize(
    ("cluster", "asked", "shape", "words"),
    [
        ("practice", site(partition="practise"), (1, 1),
         "or closed partition 'practise'; did you mean 'practice'? known: practice, urgent"),
        ("declared", site(partition="closed"), (1, 1), "or closed partition 'closed'"),
        ("declared", site(), (3, 2),
         "3 nodes x 2 ranks: each node needs 2 x 1 CPUs (cpus_per_rank); partition small has "
         "2 nodes with 2 GPUs pretend, 2 CPUs, 1.953 GB memory"),
        ("practice", PRACTICE, (2, 4),
         "2 nodes x 4 ranks: each node needs 4 GPUs, 4 x 1 CPUs (cpus_per_rank); "
         "partition practice has 4 nodes with 2 GPUs pretend"),
        ("practice", site(gpus="gres", gpu_type="a100"), (1, 1), "needs 1 GPUs of type a100"),
        ("declared", GPU, (9, 8), "488.3 GB memory, of which a job may have 8"),
        ("practice", PRACTICE, (5, 2), "partition practice has 4 nodes"),
        # sixteen nodes have 8 GPUs and three have 4: enough of one kind must be there
        ("declared", site(partition="gpu", gpus="gres", ranks_per_node=8, cpus_per_rank=16), (4, 8),
         "needs 8 GPUs, 8 x 16 CPUs (cpus_per_rank); partition gpu has 16 nodes with 8 GPUs a100"),
        ("declared", site(partition="gpu", gpus="gres", gpu_type="v100"), (4, 4),
         "needs 4 GPUs of type v100"),
        ("practice", site(mem_per_rank_gb=2.5), (1, 2), "2 x 2.5 GB memory (mem_per_rank_gb)"),
        ("practice", site(constraint="ib"), (1, 2), "the feature ib"),
        ("practice", site(time_min=24 * 60 + 1), (1, 1),
         "jobs of 1,441 minutes (time_min: 1441 for each cell) are longer than partition practice "
         "allows: 1,440 minutes"),
    ],
)  # fmt: skip
def test_what_the_cluster_lacks(cluster, asked, shape, words) -> None:
    (line,) = refusal(cluster, asked, NodeLayout(*shape), minutes=asked.time_min)
    assert words in line


def test_all_problems_are_reported_at_once() -> None:
    asked = PRACTICE.model_copy(update={"array_limit": 2000})
    layouts = NodeLayout(8, 2), NodeLayout(1, 4), NodeLayout(1, 2)
    lines = refusal("practice", asked, *layouts, minutes=5000)
    assert len(lines) == 4 and "set array_limit: 1001 (MaxArraySize)" in lines[3]


def test_jobs_that_wait_for_nodes_out_of_use_are_remarked_on() -> None:
    layouts = [NodeLayout(2, 8), NodeLayout(1, 8)]
    assert check_site(GPU, layouts, Recorded("declared"), minutes=30) == (
        "19 of 19 nodes of partition gpu are out of use now: "
        "jobs with 1 node x 8 ranks, 2 nodes x 8 ranks will wait for them",
    )


def test_the_smallest_limit_on_submitted_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "DefaultAccount": "lab",
        "DefaultQOS": "long",
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
