"""Answers of sinfo and scontrol as values, from what real ones printed; NODES= is tested with its
job (../test_interconnect.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from jobs.slurm.client.nodes import SINFO, leaves, partitions, read_sinfo
from jobs.slurm.client.run import SlurmError
from tests.jobs.slurm.client.clusters import Recorded
from train.errors import ConfigError

#: From Slurm's own documentation of topology/tree.
TREE = """SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-1]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=tux[2-3]
SwitchName=s2 Level=1 LinkSpeed=1 Nodes=tux[0-3] Switches=s[0-1]
"""
HOSTS = {"tux[0-1]": "tux0\ntux1\n", "tux[2-3]": "tux2\ntux3\n"}


def test_nodes_of_many_kinds() -> None:
    nodes = read_sinfo(Recorded("declared")(SINFO))
    assert partitions(nodes) == ["small", "gpu", "cpu", "closed"]
    small, dgx, mixed, cpu, closed = nodes
    assert small.default and small.open and small.usable and (small.count, small.cpus) == (2, 2)
    assert (small.gpus, small.time_limit_min, small.job_nodes) == ((("pretend", 2),), 60, math.inf)
    assert (dgx.count, dgx.gpus, dgx.features) == (16, (("a100", 8),), ("ib", "a100"))
    assert (dgx.default, dgx.usable, dgx.job_nodes) == (False, False, 8)
    assert mixed.gpus == (("v100", 4),)  # other resources are none of ours
    assert (cpu.gpus, cpu.features, cpu.time_limit_min) == ((), (), math.inf)
    assert closed.open, "it is down, and jobs wait there"


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:8", (("", 8),)),
        ("gpu:a100:8(S:0-1)", (("a100", 8),)),
        ("gpu:a100:4(S:0,1),gpu:v100:2,shard:8", (("a100", 4), ("v100", 2))),
        ("gpu", (("", 1),)),
        ("gpu:a100_1g.5gb:7", (("a100_1g.5gb", 7),)),
        ("craynetwork:4", ()),
    ],
)
def test_gpus_as_sites_write_them(gres: str, gpus: tuple[tuple[str, int], ...]) -> None:
    (group,) = read_sinfo(f"p|up|1:00:00|1-8|2|idle~|4|1000|{gres}|(null)\n")
    assert group.gpus == gpus and group.usable


LINE = "p*|up|1:00:00|1-8|2|idle|4|1000|gpu:8|ib\n"


@pytest.mark.parametrize(
    "text",
    [
        f"CLUSTER: big\nWelcome at 12:01\n{LINE}",
        f"{LINE}q|up|1|1|x|i|1|1||\n",
        LINE.replace("ib", "ib|a new column"),
        LINE.replace("|4|1000|", "|4+|1000+|"),
    ],
)
def test_what_sinfo_prints_besides_is_left_out(text: str) -> None:
    (group,) = read_sinfo(text)
    assert (group.partition, group.cpus, group.gpus, group.features) == (
        "p", 4, (("", 8),), ("ib",))  # fmt: skip


def test_a_state_that_is_not_known_counts_as_usable() -> None:
    (group,) = read_sinfo(LINE.replace("idle", "levitating"))
    assert group.usable


@pytest.mark.parametrize("text", ["a|b|c", "p|up|1|1|x|i|1|1||", "sorry\nno\n"])
def test_an_answer_without_one_line_of_the_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="unknown form"):
        read_sinfo(text)


@pytest.mark.parametrize(
    ("topology", "expected"),
    [(TREE, {"tux0": "s0", "tux1": "s0", "tux2": "s1", "tux3": "s1"}),
     ("No topology information available\n", {}), ("x=1 y", {}),
     (SlurmError("scontrol", "another plugin", passing=False), {})],
)  # fmt: skip
def test_leaf_switches_and_not_the_spine(topology: str | SlurmError, expected) -> None:
    def ask(argv: Sequence[str]) -> str:
        if argv[2] != "topology":
            return HOSTS[argv[3]]
        if isinstance(topology, SlurmError):
            raise topology
        return topology

    assert leaves(ask) == expected

    topology = SlurmError("scontrol", "no answer", passing=True)
    with pytest.raises(SlurmError):
        leaves(ask)
