"""Shapes: equal ranks on as few nodes as hold them, or a message with the nearest counts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.site import Site
from jobs.slurm.arrays import NodeLayout, shape_of
from train.errors import ConfigError


def site(ranks: int, **changes: Any) -> Site:
    return Site(ranks_per_node=ranks, **changes)


@pytest.mark.parametrize(
    ("gpus", "ranks", "shape"),
    [
        (1, 8, NodeLayout(1, 1)),
        (8, 8, NodeLayout(1, 8)),
        (12, 8, NodeLayout(2, 6)),
        (16, 8, NodeLayout(2, 8)),
        (4, 1, NodeLayout(4, 1)),
        (9, 4, NodeLayout(3, 3)),
    ],
)
def test_as_few_nodes_as_hold_the_ranks(gpus: int, ranks: int, shape: NodeLayout) -> None:
    assert shape_of(gpus, site(ranks)) == shape


@pytest.mark.parametrize(
    ("gpus", "ranks", "near"),
    [(5, 4, "gpus=4 or gpus=6"), (11, 4, "gpus=9 or gpus=12"), (3, 2, "gpus=2 or gpus=4")],
)
def test_uneven_counts_name_the_nearest(gpus: int, ranks: int, near: str) -> None:
    with pytest.raises(ConfigError, match=f"gpus={gpus} cannot be spread equally.*nearest: {near}"):
        shape_of(gpus, site(ranks))


def test_more_nodes_than_a_job_may_have() -> None:
    assert shape_of(8, site(4, max_nodes=2)) == NodeLayout(2, 4)
    with pytest.raises(ConfigError, match=r"needs 3 nodes .* allows a job 2 .* at most gpus=8"):
        shape_of(9, site(4, max_nodes=2))
    with pytest.raises(ConfigError, match=r"nearest: gpus=4 or gpus=6$"):
        shape_of(5, site(4, max_nodes=2))
    with pytest.raises(ConfigError, match=r"nearest: gpus=6 or gpus=8$"):
        shape_of(7, site(4, max_nodes=2))


@given(gpus=st.integers(1, 300), ranks=st.integers(1, 16))
def test_every_shape_holds_all_ranks_on_the_fewest_nodes(gpus: int, ranks: int) -> None:
    try:
        shape = shape_of(gpus, site(ranks))
    except ConfigError as error:
        names = str(error).split("nearest: ")[1].split(" or ")
        counts = [int(name.removeprefix("gpus=")) for name in names]
        assert counts[0] < gpus < counts[1]
        for count in counts:
            shape_of(count, site(ranks))  # what is named as possible is
        return
    assert shape.size == gpus
    assert shape.nodes == math.ceil(gpus / ranks)
    assert 1 <= shape.ranks_per_node <= ranks


def test_a_shape_reads_well() -> None:
    assert str(NodeLayout(1, 1)) == "1 node x 1 rank"
    assert str(NodeLayout(2, 8)) == "2 nodes x 8 ranks"
