"""What is said of suspects that leaf switches do not let tell apart from something else."""

from __future__ import annotations

from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import run
from tests.train.interconnect.diagnosis.test_leaf_switches import STEADY, played, slowed
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
