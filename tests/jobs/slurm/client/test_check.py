"""What a cluster cannot do is said before anything is submitted, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.site import Site
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.client.site import SINFO, check_site
from tests.jobs.slurm.client.clusters import Recorded
from train.errors import ConfigError


def site(**changes: Any) -> Site:
    return Site(**{"ranks_per_node": 2, "time_min": 30, "array_limit": 50, **changes})


def refusal(cluster: str, asked: Site, *shapes: NodeLayout, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        check_site(asked, shapes, Recorded(cluster), **more)
    first, *lines = str(caught.value).split("\n  ")
    assert first == "the cluster cannot run this; nothing was submitted:"
    return lines


PRACTICE = site(partition="practice", gpus="gres")
GPU = site(partition="gpu", gpus="gres", ranks_per_node=8)


@pytest.mark.parametrize(
    "shape",
    [NodeLayout(1, 1), NodeLayout(1, 2), NodeLayout(2, 2), NodeLayout(4, 1), NodeLayout(4, 2)],
)
def test_what_fits_passes_with_one_question_to_each_program(shape: NodeLayout) -> None:
    ask = Recorded("practice")
    assert check_site(PRACTICE, [shape] * 3, ask) == ()
    assert ask.asked == ["sinfo", "config"]


def test_without_a_partition_the_default_one_is_meant() -> None:
    assert check_site(site(), [NodeLayout(2, 2)], Recorded("declared")) == ()
    (line,) = refusal("declared", site(), NodeLayout(3, 2))
    assert line == "3 nodes x 2 ranks: partition small has 2 nodes"
    sinfo = Recorded("declared")(SINFO).replace("small*", "small")
    with pytest.raises(ConfigError, match="no default partition: set partition: to one of small,"):
        check_site(site(), [NodeLayout(1, 1)], Recorded("declared", sinfo=sinfo))


def test_an_unknown_partition_names_those_there_are() -> None:
    (line,) = refusal("practice", site(partition="practise"), NodeLayout(1, 1))
    assert line == "unknown partition 'practise'; did you mean 'practice'? known: practice, urgent"


def test_a_closed_partition() -> None:
    (line,) = refusal("declared", site(partition="closed"), NodeLayout(1, 1))
    assert line == "partition closed is closed (sinfo says it is not up)"


def test_more_gpus_than_the_cluster_has() -> None:
    (line,) = refusal("practice", PRACTICE, NodeLayout(8, 2))
    assert line == "8 nodes x 2 ranks: needs 16 GPUs, and partition practice has 8 in all"
    (line,) = refusal("practice", PRACTICE, NodeLayout(2, 4))
    assert line == (
        "2 nodes x 4 ranks: needs 2 nodes with 4 GPUs; "
        "partition practice has 4 nodes with 2 GPUs pretend"
    )
    asked = PRACTICE.model_copy(update={"gpu_type": "a100"})
    (line,) = refusal("practice", asked, NodeLayout(1, 1))
    assert line.endswith("needs 1 GPUs of type a100, and partition practice has 0 in all")


def test_limits_of_the_partition() -> None:
    (line,) = refusal("declared", GPU, NodeLayout(9, 8))
    assert line == "9 nodes x 8 ranks: jobs in partition gpu may have 8 nodes"
    (line,) = refusal("practice", site(time_min=24 * 60 + 1), NodeLayout(1, 1))
    assert line == "jobs of 1,441 minutes are longer than partition practice allows: 1,440 minutes"
    (line,) = refusal("practice", site(), NodeLayout(1, 1), minutes=1500)
    assert "jobs of 1,500 minutes (time_min: 30 for each cell) are longer" in line


def test_nodes_of_different_kinds_are_told_apart() -> None:
    """Sixteen nodes have 8 GPUs and three have 4: enough of one kind must be there."""
    assert check_site(GPU, [NodeLayout(8, 8)], Recorded("declared"))
    wide = GPU.model_copy(update={"cpus_per_rank": 16})
    (line,) = refusal("declared", wide, NodeLayout(4, 8))
    assert line == (
        "4 nodes x 8 ranks: needs 4 nodes with 128 CPUs (8 x 16 of cpus_per_rank); "
        "partition gpu has 16 nodes with 112 CPUs"
    )
    old = GPU.model_copy(update={"gpu_type": "v100"})
    (line,) = refusal("declared", old, NodeLayout(4, 4))
    assert line.endswith("needs 16 GPUs of type v100, and partition gpu has 12 in all")


def test_cpus_memory_and_features() -> None:
    (line,) = refusal("practice", site(cpus_per_rank=2), NodeLayout(1, 2))
    assert "needs 1 node with 4 CPUs (2 x 2 of cpus_per_rank); partition practice has 4" in line
    (line,) = refusal("practice", site(mem_per_rank_gb=2.5), NodeLayout(1, 2))
    assert "needs 1 node with 5 GB memory (2 x 2.5 of mem_per_rank_gb)" in line
    assert line.endswith("partition practice has 4 nodes with 4.707 GB")
    (line,) = refusal("practice", site(constraint="ib"), NodeLayout(1, 2))
    assert line.endswith("the feature ib; partition practice has 4 nodes with features (none)")
    assert check_site(site(constraint="ib|opa"), [NodeLayout(1, 2)], Recorded("practice")) == ()


def test_all_problems_are_told_at_once() -> None:
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
