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


def refusal(cluster: str, asked: Site, *shapes: NodeLayout, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check_site(asked, shapes, Recorded(cluster), **more)
    first, *lines = str(caught.value).split("\n  ")
    assert first == "the cluster cannot run this; nothing was submitted:"
    return lines


def test_what_fits_passes_with_one_question_to_each_program() -> None:
    ask = Recorded("practice")
    shapes = [NodeLayout(nodes, ranks) for nodes in (1, 4) for ranks in (1, 2)]
    assert check_site(PRACTICE, shapes, ask) == ()
    assert ask.asked == ["sinfo", "config"]


def test_without_a_partition_the_default_one_is_meant() -> None:
    assert check_site(site(), [NodeLayout(2, 2)], Recorded("declared")) == ()
    (line,) = refusal("declared", site(), NodeLayout(3, 2))
    assert line == (
        "3 nodes x 2 ranks: needs 3 nodes; partition small has 2 nodes with 2 GPUs pretend, "
        "2 CPUs, 1.953 GB memory"
    )
    sinfo = Recorded("declared")(SINFO).replace("small*", "small")
    with pytest.raises(ConfigError, match="no default partition: set partition: to one of small,"):
        check_site(site(), [NodeLayout(1, 1)], Recorded("declared", sinfo=sinfo))


@pytest.mark.parametrize(
    ("cluster", "asked", "shape", "words"),
    [
        ("practice", site(partition="practise"), (1, 1),
         "unknown partition 'practise'; did you mean 'practice'? known: practice, urgent"),
        ("declared", site(partition="closed"), (1, 1),
         "partition closed is closed (its state in sinfo is not up)"),
        ("practice", PRACTICE, (2, 4), "2 nodes x 4 ranks: needs 2 nodes with 4 GPUs; "
         "partition practice has 4 nodes with 2 GPUs pretend"),
        ("practice", site(gpus="gres", gpu_type="a100"), (1, 1), "1 node with 1 GPUs of type a100"),
        ("declared", GPU, (9, 8), "9 nodes x 8 ranks: jobs in partition gpu may have 8 nodes"),
        ("practice", site(time_min=24 * 60 + 1), (1, 1),
         "jobs of 1,441 minutes are longer than partition practice allows: 1,440 minutes"),
        # sixteen nodes have 8 GPUs and three have 4: enough of one kind must be there
        ("declared", site(partition="gpu", gpus="gres", ranks_per_node=8, cpus_per_rank=16), (4, 8),
         "4 nodes x 8 ranks: needs 4 nodes with 128 CPUs (8 x 16 of cpus_per_rank); "
         "partition gpu has 16 nodes with 8 GPUs a100, 112 CPUs"),
        ("declared", site(partition="gpu", gpus="gres", gpu_type="v100"), (4, 4),
         "needs 4 nodes with 4 GPUs of type v100; partition gpu has"),
        ("practice", site(mem_per_rank_gb=2.5), (1, 2),
         "needs 1 node with 5 GB memory (2 x 2.5 of mem_per_rank_gb); "
         "partition practice has 4 nodes with 2 GPUs pretend, 2 CPUs, 4.707 GB memory"),
        ("practice", site(constraint="ib"), (1, 2),
         "needs 1 node with the feature ib; partition practice has 4 nodes with"),
    ],
)  # fmt: skip
def test_what_the_cluster_lacks(
    cluster: str, asked: Site, shape: tuple[int, int], words: str
) -> None:
    (line,) = refusal(cluster, asked, NodeLayout(*shape))
    assert words in line


def test_the_longest_job_of_a_sweep_counts() -> None:
    (line,) = refusal("practice", site(), NodeLayout(1, 1), minutes=1500)
    assert "jobs of 1,500 minutes (time_min: 30 for each cell) are longer" in line


def test_a_formula_of_features_is_left_to_slurm() -> None:
    assert check_site(site(constraint="ib|opa"), [NodeLayout(1, 2)], Recorded("practice")) == ()


def test_all_problems_are_reported_at_once() -> None:
    asked = PRACTICE.model_copy(update={"time_min": 5000, "array_limit": 2000})
    lines = refusal("practice", asked, NodeLayout(8, 2), NodeLayout(1, 4), NodeLayout(1, 2))
    assert len(lines) == 4
    assert lines[3] == (
        "array_limit: 2000 is more than the elements that the cluster takes in one array: "
        "set array_limit: 1001 (MaxArraySize)"
    )


def test_nodes_out_of_use_are_worth_a_remark() -> None:
    (text,) = check_site(GPU, [NodeLayout(2, 8), NodeLayout(1, 8)], Recorded("declared"))
    assert text == (
        "19 of 19 nodes of partition gpu are out of use now: "
        "jobs with 1 node x 8 ranks, 2 nodes x 8 ranks will wait for them"
    )


def test_whole_nodes_for_part_of_their_gpus_are_worth_a_remark() -> None:
    (text,) = check_site(
        site(exclusive=True), [NodeLayout(2, 1), NodeLayout(1, 2)], Recorded("practice")
    )
    assert text == "exclusive: 2 nodes x 1 rank leaves 2 ranks idle in each job"


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
    assert submit_limit("QOSMaxSubmitJobPerUserLimit", site()) is None
