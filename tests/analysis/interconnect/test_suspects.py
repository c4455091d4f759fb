"""What is said of suspects that leaf switches do not let tell apart from something else."""

from __future__ import annotations

from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import run
from tests.train.interconnect.diagnosis.test_leaf_switches import STEADY, played, slowed
from train.interconnect.measure.rounds import Pair
from train.interconnect.simulate import SimulatedFabric


def network(*sizes: int) -> SimulatedFabric:
    made = SimulatedFabric(sum(sizes), STEADY, 1)
    made.leaf = [leaf for leaf, count in enumerate(sizes) for _ in range(count)]
    return made


def evidence(made: SimulatedFabric, *nodes: str) -> str:
    (found,) = (f for f in judge(run(played(made))).findings
                if f.nodes == nodes and f.what in ("node", "link"))  # fmt: skip
    return found.evidence


def test_a_node_alone_on_its_leaf_may_be_its_uplink() -> None:
    made = network(4, 4, 4, 1)
    slowed(made, [12], 0.5, "send and receive")
    assert evidence(made, "n12").endswith("; or the uplink of leaf3, where it is alone")
    made = network(4, 4, 4, 1)
    slowed(made, [0], 0.5, "send and receive")
    assert "uplink" not in evidence(made, "n00")


def test_both_ways_between_the_only_nodes_of_a_leaf_may_be_one_of_them() -> None:
    made = network(4, 4, 2)
    made.path = {Pair(8, 9): 0.5e10, Pair(9, 8): 0.5e10}
    assert evidence(made, "n08", "n09").endswith("have no others on their leaf switch")
    made.path = {Pair(8, 9): 0.5e10}
    assert "one of the two" not in evidence(made, "n08", "n09")
    made.up = made.down = dict.fromkeys(range(3), 0.4e10)
    assert evidence(made, "n08", "n09").endswith("have no others on their leaf switch")
    made = network(4, 4, 2)
    made.path = {Pair(0, 1): 0.5e10, Pair(1, 0): 0.5e10}
    assert "one of the two" not in evidence(made, "n00", "n01")
