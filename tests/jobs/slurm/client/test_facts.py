"""Answers of sinfo and scontrol as values, from what real ones printed."""

from __future__ import annotations

import math

import pytest

from jobs.slurm.client.site import (
    SCONTROL,
    SINFO,
    max_array_size,
    minutes,
    partitions,
    read_config,
    read_sinfo,
)
from tests.jobs.slurm.client.clusters import Recorded
from train.errors import ConfigError


def test_the_practice_cluster() -> None:
    groups = read_sinfo(Recorded("practice")(SINFO))
    assert partitions(groups) == ["practice", "urgent"]
    first = groups[0]
    assert (first.default, first.up, first.count, first.cpus) == (True, True, 4, 2)
    assert first.gpus == (("pretend", 2),)
    assert first.time_limit_min == 24 * 60
    assert first.job_nodes == math.inf
    assert first.usable
    assert not groups[1].default


def test_nodes_of_many_kinds() -> None:
    small, dgx, mixed, cpu, closed = read_sinfo(Recorded("declared")(SINFO))
    assert (dgx.count, dgx.gpus, dgx.features) == (16, (("a100", 8),), ("ib", "a100"))
    assert (dgx.state, dgx.usable, dgx.job_nodes) == ("down", False, 8)
    assert mixed.gpus == (("v100", 4),)  # other resources are none of ours
    assert (mixed.gpus_of(None), mixed.gpus_of("v100"), mixed.gpus_of("a100")) == (4, 4, 0)
    assert (cpu.gpus, cpu.features, cpu.time_limit_min) == ((), (), math.inf)
    assert (closed.up, small.up) == (False, True)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:8", (("", 8),)),
        ("gpu:a100:8(S:0-1)", (("a100", 8),)),
        ("gpu:a100:4(S:0,1),gpu:v100:2,shard:8", (("a100", 4), ("v100", 2))),
        ("gpu", (("", 1),)),
        ("gpu:a100_1g.5gb:7", (("a100_1g.5gb", 7),)),
        ("(null)", ()),
        ("craynetwork:4", ()),
    ],
)
def test_gpus_as_sites_write_them(gres: str, gpus: tuple[tuple[str, int], ...]) -> None:
    (group,) = read_sinfo(f"p|up|1:00:00|1-8|2|idle~|4|1000|{gres}|(null)\n")
    assert group.gpus == gpus
    assert group.usable


@pytest.mark.parametrize(
    ("text", "value"),
    [("30:00", 30), ("1:30:00", 90), ("2-00:00:00", 2880), ("1-01:01:30", 1501.5),
     ("infinite", math.inf), ("UNLIMITED", math.inf), ("n/a", math.inf)],
)  # fmt: skip
def test_time_limits(text: str, value: float) -> None:
    assert minutes(text) == value


@pytest.mark.parametrize(
    "text", ["slurm_load_partitions: something", "a|b|c", "p|up|1|1|x|i|1|1||"]
)
def test_answers_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="sinfo answered in an unknown form"):
        read_sinfo(text)


def test_no_partition_at_all() -> None:
    with pytest.raises(ConfigError, match="sinfo names no partition"):
        read_sinfo("\n")


@pytest.mark.parametrize(("cluster", "size"), [("practice", 1001), ("declared", 51)])
def test_the_size_of_arrays(cluster: str, size: int) -> None:
    config = read_config(Recorded(cluster)(SCONTROL))
    assert config["ClusterName"] == {"practice": "practice", "declared": "trial"}[cluster]
    assert max_array_size(config) == size
    assert max_array_size({}) is None
