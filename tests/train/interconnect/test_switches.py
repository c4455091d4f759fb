"""Leaf switches: oversubscription by design is no fault, a slow uplink is one and no node's."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from train.interconnect.matrix import matrix_of
from train.interconnect.record import Tournament
from train.interconnect.rounds import Pair
from train.interconnect.simulate import Noise, SimulatedFabric, blamed_in
from train.interconnect.stream import Plan
from train.interconnect.switches import leaves_of, level
from train.interconnect.tournament import play

STEADY = Noise(0.005, 0.01)


class Hashed(SimulatedFabric):
    """Between leaves each connection of a round takes one of the leaf's links by chance."""

    async def measure(self, pairs, plan, phase):
        self.chosen = {pair: int(self._rng.integers(self.leaf.count(0))) for pair in pairs}
        return await super().measure(pairs, plan, phase)

    def _share(self, pair, pairs):
        a, b = self.leaf[pair.sender], self.leaf[pair.receiver]
        if a == b:
            return float("inf")
        same = [p for p in pairs if self.chosen[p] == self.chosen[pair]
                and self.leaf[p.sender] != self.leaf[p.receiver]]  # fmt: skip
        leaving = sum(self.leaf[p.sender] == a for p in same)
        coming = sum(self.leaf[p.receiver] == b for p in same)
        return 1e10 / max(leaving, coming)


def fabric(leaves: int, each: int, seed: int = 1) -> SimulatedFabric:
    made = SimulatedFabric(leaves * each, STEADY, seed)
    made.leaf = [node // each for node in range(leaves * each)]
    return made


def played(made: SimulatedFabric) -> Tournament:
    switches = {node.name: f"leaf{leaf}" for node, leaf in zip(made.nodes, made.leaf, strict=True)}
    return asyncio.run(play(made, Plan(), 0, lambda _: None, switches))


def kinds(found: Tournament) -> set[tuple[str, tuple[str, ...]]]:
    return {(retest.kind, retest.nodes) for retest in found.retests
            if retest.outcome == "confirmed"}  # fmt: skip


@pytest.mark.parametrize(("leaves", "each"), [(2, 2), (2, 4), (4, 4), (8, 4)])
def test_healthy_leaves_blame_nobody(leaves: int, each: int) -> None:
    for seed in range(5):
        found = played(fabric(leaves, each, seed))
        assert blamed_in(found) == set()
        assert found.decision.across == pytest.approx(1, abs=0.02)


def test_a_fabric_that_carries_half_across_leaves_is_made_so() -> None:
    """All uplinks alike: every pair across reaches half of those within, and no node is slow."""
    made = fabric(4, 4)
    made.up = dict.fromkeys(range(4), 5000000000.0)
    found = played(made)
    assert blamed_in(found) == set()
    assert found.decision.across is not None and found.decision.across < 0.6


@pytest.mark.parametrize("each", [2, 4])
def test_a_slow_uplink_is_named_and_none_of_its_nodes(each: int) -> None:
    made = fabric(4, each)
    made.up[2] = 0.4e10
    assert kinds(played(made)) == {("uplink-send", ("leaf2",))}
    made = fabric(4, each)
    made.down[1] = 0.4e10
    assert kinds(played(made)) == {("uplink-receive", ("leaf1",))}
    made = fabric(4, each)
    made.up[3] = made.down[3] = 0.4e10
    assert kinds(played(made)) == {("uplink", ("leaf3",))}


@pytest.mark.parametrize("leaves", [2, 4])
def test_an_uplink_that_is_slow_in_company_only_is_named(leaves: int) -> None:
    """It carries two pairs of four: none is slow alone, and few are in any round."""
    made = fabric(leaves, 4)
    made.up[1] = 2e10
    named = ("leaf1", "leaf0") if leaves == 2 else ("leaf1",)
    assert kinds(played(made)) == {("uplink-send", named)}


def test_leaves_of_other_sizes_are_compared_by_as_many_pairs() -> None:
    made = fabric(4, 4)
    made.leaf = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4]
    made.up = dict.fromkeys(range(5), 2e10)
    assert blamed_in(played(made)) == set()
    made.down[2] = 1e10
    assert kinds(played(made)) == {("uplink-receive", ("leaf2",))}


def test_of_two_leaves_only_a_direction_can_be_named() -> None:
    made = fabric(2, 4)
    made.up[0] = 0.5e10
    assert kinds(played(made)) == {("uplink-send", ("leaf0", "leaf1"))}


def test_a_slow_node_is_still_a_slow_node() -> None:
    made = fabric(4, 4)
    made.send[5] *= 0.5
    made.receive[5] *= 0.5
    assert kinds(played(made)) == {("node", (made.nodes[5].name,))}


def test_a_slow_node_behind_a_slow_uplink_are_two_faults() -> None:
    made = fabric(4, 4)
    made.up[1] = 0.4e10
    made.send[0] *= 0.5
    assert kinds(played(made)) == {("uplink-send", ("leaf1",)), ("send", (made.nodes[0].name,))}


@pytest.mark.parametrize(("leaves", "each"), [(2, 4), (2, 8), (4, 4)])
def test_routes_that_collide_are_no_slow_uplink(leaves: int, each: int) -> None:
    """Uplinks of as many links as nodes; each connection takes one of them at random."""
    for seed in range(25):
        made = Hashed(leaves * each, STEADY, seed)
        made.leaf = [node // each for node in range(leaves * each)]
        assert not [kind for kind, _ in kinds(played(made)) if kind.startswith("uplink")], seed


def test_levels() -> None:
    samples = {Pair(a, b): (1e9 if a // 2 == b // 2 else 0.25e9,) * 3
               for a in range(4) for b in range(4) if a != b}  # fmt: skip
    names = ["a", "b", "c", "d"]
    leaves = leaves_of(names, {"a": "x", "b": "x", "c": "y", "d": "y"})
    assert leaves is not None
    raised, share = level(matrix_of(names, samples), leaves)
    assert share == 0.25
    assert np.nanmin(raised.rates) == np.nanmax(raised.rates) == 1e9


def test_switches_that_tell_nothing_apart() -> None:
    assert leaves_of(["a", "b"], {}) is None
    assert leaves_of(["a", "b", "c"], {"a": "x", "b": "x", "c": "x"}) is None
    assert leaves_of(["a", "b", "c"], {"a": "x", "b": "x", "c": "y"}) is None
