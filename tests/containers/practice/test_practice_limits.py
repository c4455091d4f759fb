"""Slow links as commands, and on the cluster itself."""

from __future__ import annotations

import pytest

from containers.practice.limits import check_rate, limit_commands, nodes_named
from containers.practice.place import PracticeError
from containers.practice.shape import Node, Shape
from tests.practice import Practice

SHAPE = Shape(
    "10.0.0.0/24", "10.0.0.1", "10.0.0.2",
    tuple(Node(f"node{n}", f"10.0.0.1{n}", (0,), 1024) for n in range(1, 5)),
)  # fmt: skip
KEEPERS = {"controller": 1, **{f"node{n}": 10 + n for n in range(1, 5)}}


def lines(rate: str, **how: str) -> list[str]:
    commands = limit_commands(SHAPE, "node3", rate, KEEPERS, **how)
    return [" ".join(command) for command in commands]


def test_a_nodes_link_is_slow_where_its_packets_leave() -> None:
    found = lines("50mbit")
    tail = "root tbf rate 50mbit burst 16kb latency 50ms"
    assert [line for line in found if "tbf" in line] == [
        line for line in found if line.endswith((f"eth0 {tail}", f"hsn3 {tail}"))
    ]
    assert sum("eth0" in line for line in found) == sum("hsn3" in line for line in found) == 3


@pytest.mark.parametrize(("way", "device"), [("send", "eth0"), ("receive", "hsn3")])
def test_one_way(way: str, device: str) -> None:
    assert all(f"dev {device} " in line for line in lines("50mbit", way=way))


def test_off_takes_away_and_adds_nothing() -> None:
    assert [line.split("tc qdisc ")[1] for line in lines("off", way="send")] == [
        "replace dev eth0 root pfifo", "del dev eth0 root",
    ]  # fmt: skip


def test_towards_one_node() -> None:
    found = lines("50mbit", to="node1", rest="200mbit")
    assert any(line.endswith("u32 match ip dst 10.0.0.11/32 flowid 1:1") for line in found)
    assert any("classid 1:1 htb rate 50mbit" in line for line in found)
    assert any("classid 1:2 htb rate 200mbit" in line for line in found)


@pytest.mark.parametrize("rate", ["1foo", "0mbit", "-1mbit", "5", "1e3mbit", "5mbit; reboot", ""])
def test_rates_that_are_none(rate: str) -> None:
    with pytest.raises(PracticeError, match="expected one like 200mbit, or off"):
        check_rate(rate)


def test_names() -> None:
    assert nodes_named("all") == ("node1", "node2", "node3", "node4")
    assert nodes_named("node2") == ("node2",)


@pytest.mark.slurm
def test_limits_on_the_cluster(cluster: Practice) -> None:
    try:
        cluster.limit("node1", "50mbit")
        assert "rate 50Mbit" in cluster.inside("node1", "tc", "qdisc", "show", "dev", "eth0").stdout
        assert "rate 50Mbit" in cluster.inside("controller", "tc", "qdisc", "show").stdout
        cluster.limit("node1", "20mbit", to="node2")
        assert "20Mbit" in cluster.inside("node1", "tc", "class", "show", "dev", "eth0").stdout
        cluster.stop_node("node4", power=True)
        with pytest.raises(PracticeError, match="node4 is off"):
            cluster.limit("node4", "20mbit")
        cluster.limit("node4", "off")
        with pytest.raises(PracticeError, match="expected one node, another one as its target"):
            cluster.limit("node1", "20mbit", to="node1")
    finally:
        cluster.limit("all", "off")
        cluster.heal()
    left = cluster.inside("node1", "tc", "qdisc", "show", "dev", "eth0").stdout
    assert "noqueue" in left and "tbf" not in left
