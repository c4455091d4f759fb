"""Leaf switches: oversubscription by design is no fault, a slow uplink is one and no node's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import numpy as np
import pytest

from train.interconnect.diagnosis.leaf_switches import leaves_of, level, uplink_rounds
from train.interconnect.diagnosis.statistics import matrix_of
from train.interconnect.measure.rounds import Pair
from train.interconnect.measure.stream import Plan
from train.interconnect.record import Tournament
from train.interconnect.simulate import Noise, SimulatedFabric, blamed_in
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


def slowed(made: SimulatedFabric, nodes: Iterable[int], share: float, ways: str) -> None:
    for node in nodes:
        if "send" in ways:
            made.send[node] *= share
        if "receive" in ways:
            made.receive[node] *= share


@pytest.mark.parametrize("ways", ["send", "receive", "send and receive"])
@pytest.mark.parametrize("designed", [1.0, 0.5])
@pytest.mark.parametrize(("leaves", "each"), [(4, 2), (4, 4), (6, 3)])
def test_a_leaf_of_slow_nodes_has_no_slow_uplink(
    leaves: int, each: int, designed: float, ways: str
) -> None:
    """They are as slow among themselves. designed: what a whole leaf carries to others; where that
    holds up some rounds and others not, links between slow nodes may be named in their place."""
    made = fabric(leaves, each)
    if designed < 1:
        made.up = dict.fromkeys(range(leaves), designed * each * 1e10)
    slowed(made, range(each), 0.3, ways)
    found = played(made)
    slow = {node.name for node in made.nodes[:each]}
    if designed == 1:
        kind = "node" if ways == "send and receive" else ways
        assert kinds(found) == {(kind, (name,)) for name in slow}
    assert {name for nodes in blamed_in(found) for name in nodes} & slow
    assert all(slow & set(nodes) for nodes in blamed_in(found))
    assert not [s for s in found.decision.suspects if s.kind.startswith("uplink")]


@pytest.mark.parametrize("ways", ["send", "receive"])
def test_one_way_between_two_leaves_may_be_their_nodes(ways: str) -> None:
    made = fabric(2, 4)
    slowed(made, range(4), 0.5, ways)
    found = played(made)
    assert blamed_in(found) == set()
    assert found.decision.undecided and "4 of 8 nodes" in found.decision.undecided


def test_an_uplink_that_carries_less_than_its_slow_nodes_would() -> None:
    made = fabric(4, 4)
    slowed(made, range(4), 0.6, "send")
    made.up[0] = 1.2e10  # half of what they reach
    assert ("uplink-send", ("leaf0",)) in kinds(played(made))


def test_in_large_fabrics_the_second_look_asks_the_nodes_among_themselves() -> None:
    """With eight partners each of 300 few meet one of their own leaf."""
    made = fabric(75, 4, seed=3)
    slowed(made, range(8, 12), 0.5, "send and receive")
    found = played(made)
    (suspect,) = (s for s in found.decision.suspects if s.kind == "uplink")
    (again,) = (r for r in found.retests if r.nodes == suspect.nodes)
    assert (suspect.nodes, again.outcome) == (("leaf2",), "unsure")
    assert "among themselves" in again.why
    assert blamed_in(found) <= {(made.nodes[node].name,) for node in range(8, 12)}


@pytest.mark.parametrize(
    ("leaves", "up", "down"),
    [
        (3, (1, 2), ()),
        (3, (), (0, 1)),
        (4, (0, 1), (0, 1)),
        (4, (0, 1, 2), ()),
        (6, (1, 3, 5), (1, 3, 5)),
    ],
)
def test_half_of_the_uplinks_or_more_blame_nobody_and_are_no_pass(
    leaves: int, up: tuple[int, ...], down: tuple[int, ...]
) -> None:
    made = fabric(leaves, 4)
    made.up, made.down = dict.fromkeys(up, 2e10), dict.fromkeys(down, 2e10)
    found = played(made)
    assert blamed_in(found) == set()
    assert found.decision.undecided is not None
    assert "directions of uplinks" in found.decision.undecided


def test_fewer_slow_uplinks_than_half_are_each_named() -> None:
    made = fabric(5, 4)
    made.up, made.down = {0: 2e10, 3: 2e10}, {0: 2e10, 3: 2e10}
    assert kinds(played(made)) == {("uplink", ("leaf0",)), ("uplink", ("leaf3",))}
    assert played(fabric(5, 4)).decision.visible_uplinks == pytest.approx(0.93, abs=0.03)


class Broken(SimulatedFabric):
    """What leaf 1 sends to others is lost where it is many at once."""

    async def measure(self, pairs, plan, phase):
        return [
            m.model_copy(update={"rates": (), "error": "no answer"})
            if len(pairs) > 1 and phase == "uplinks" and self.leaf[p.sender] == 1
            else m
            for p, m in zip(pairs, await super().measure(pairs, plan, phase), strict=True)
        ]


@pytest.mark.parametrize("leaves", [2, 4])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_crossings_of_which_nothing_came_are_no_pass(leaves: int, share: float) -> None:
    made = Broken(leaves * 4, STEADY, 1)
    made.leaf = [node // 4 for node in range(leaves * 4)]
    made.up[1] = share * 4e10 if share == 1 else share * 1e10
    found = played(made)
    assert blamed_in(found) == set()
    assert found.decision.undecided is not None
    assert "nothing came through uplinks" in found.decision.undecided
    assert "leaf1 sends" in found.decision.undecided


@pytest.mark.parametrize(("share", "told"), [(1.0, 1.0), (0.75, 0.75), (0.3, 0.3)])
def test_two_leaves_one_of_which_has_a_slow_uplink_both_ways(share: float, told: float) -> None:
    """No peers can tell; that whole leaves reach less of each other than within can be told."""
    made = fabric(2, 4)
    made.up[0] = made.down[0] = share * 4e10
    found = played(made)
    assert found.decision.crossing == pytest.approx(told, rel=0.05)
    assert not [k for k in kinds(found) if k[0] != "link"]


@pytest.mark.parametrize("sizes", [(8, 8, 3), (8, 8, 2)])
@pytest.mark.parametrize("ways", ["up", "down", "up and down"])
def test_nodes_behind_an_uplink_that_was_not_compared(sizes: tuple[int, ...], ways: str) -> None:
    """They are fast among themselves: they are not blamed, and nothing passes."""
    made = SimulatedFabric(sum(sizes), STEADY, 1)
    made.leaf = [leaf for leaf, count in enumerate(sizes) for _ in range(count)]
    if "up" in ways:
        made.up[2] = 0.4e10
    if "down" in ways:
        made.down[2] = 0.4e10
    found = played(made)
    assert blamed_in(found) == set()
    assert found.decision.undecided is not None
    assert "leaf2" in found.decision.undecided and "uplink" in found.decision.undecided


@pytest.mark.parametrize(("leaves", "each"), [(3, 4), (4, 4), (5, 4), (4, 8)])
@pytest.mark.parametrize("designed", [0.5, 0.25])
def test_oversubscription_by_design_hides_nothing(leaves: int, each: int, designed: float) -> None:
    """Some rounds share an uplink and others have it to themselves."""
    for seed in range(3):
        made = fabric(leaves, each, seed)
        made.up = dict.fromkeys(range(leaves), designed * each * 1e10)
        made.down = dict(made.up)
        healthy = played(made)
        assert blamed_in(healthy) == set() and healthy.decision.undecided is None
        assert healthy.decision.crossing == pytest.approx(designed, rel=0.05)
        made.send[1] *= 0.2
        made.receive[1] *= 0.2
        assert kinds(played(made)) == {("node", (made.nodes[1].name,))}


def test_a_slow_link_within_a_leaf_is_not_crowded_out_by_collisions_across() -> None:
    for seed in range(10):
        made = fabric(3, 4, seed)
        made.up = made.down = dict.fromkeys(range(3), 2e10)
        made.path[Pair(4, 7)] = 0.75e10
        found = played(made)
        assert blamed_in(found) == {(made.nodes[4].name, made.nodes[7].name)}


@pytest.mark.parametrize("share", [0.6, 0.8])
def test_a_leaf_of_slow_nodes_is_no_measure_for_an_uplink(share: float) -> None:
    made = fabric(4, 4)
    slowed(made, range(4), 0.5, "receive")
    made.up[1] = share * 4e10
    named = {("receive", (node.name,)) for node in made.nodes[:4]}
    assert kinds(played(made)) == {*named, ("uplink-send", ("leaf1",))}


def designed(leaves: int, each: int, share: float, seed: int) -> SimulatedFabric:
    made = fabric(leaves, each, seed)
    made.up = made.down = dict.fromkeys(range(leaves), share * each * 1e10)
    return made


def test_links_within_a_leaf_are_not_compared_with_those_across() -> None:
    """Of two-node leaves most pairs are across and carry a quarter by design."""
    for seed in range(6):
        made = designed(4, 2, 0.25, seed)
        made.path[Pair(0, 1)] = 0.5e10
        assert blamed_in(played(made)) == {("n0", "n1")}


def test_half_of_the_crossings_held_up_is_no_scatter_of_links() -> None:
    """In rounds of five leaves about half of the crossings share an uplink."""
    for seed in range(6):
        found = played(designed(5, 2, 0.5, seed))
        assert found.decision.visible_links is not None and found.decision.visible_links > 0.85
        assert found.decision.visible_across is not None and found.decision.visible_across < 0.75
        assert blamed_in(found) == set()


def test_slow_nodes_of_one_small_leaf_are_not_freed_by_a_fabric_that_holds_up_all() -> None:
    for seed in range(6):
        made = designed(3, 2, 0.25, seed)
        slowed(made, [4], 0.75, "send and receive")
        found = played(made)
        assert not {r.nodes for r in found.retests if r.outcome == "recovered"} & {("n4",), ("n5",)}
        assert blamed_in(found) <= {("n4",), ("n4", "n5"), ("n5", "n4")}


def test_a_node_that_is_alone_on_its_leaf_is_not_excused_by_the_design() -> None:
    for seed in range(6):
        made = SimulatedFabric(13, STEADY, seed)
        made.leaf = [node // 4 for node in range(13)]
        made.up = made.down = dict.fromkeys(range(4), 2e10)
        assert blamed_in(played(made)) == set()
        slowed(made, [12], 0.5, "send and receive")
        assert kinds(played(made)) == {("node", ("n12",))}


def test_what_a_third_leaf_sends_through_a_slow_uplink_is_not_single_links() -> None:
    made = SimulatedFabric(9, STEADY, 1)
    made.leaf = [0, 0, 0, 0, 0, 1, 1, 1, 2]
    made.up = made.down = dict.fromkeys(range(3), 2.5e10)
    made.down = {**made.down, 0: 0.5e10}
    assert kinds(played(made)) == {("uplink-send", ("leaf1", "leaf0"))}


def test_slow_nodes_stay_fit_to_be_judged_beside_a_slow_uplink() -> None:
    made = fabric(4, 4)
    slowed(made, range(4), 0.5, "send and receive")
    made.up[1] = 0.3 * 4e10
    named = {("node", (node.name,)) for node in made.nodes[:4]}
    assert kinds(played(made)) == {*named, ("uplink-send", ("leaf1",))}


def test_an_uplink_little_slower_than_its_nodes_is_its_own_fault() -> None:
    made = fabric(4, 4)
    slowed(made, range(4), 0.95, "send")
    made.up[0] = 0.88 * 4e10
    assert kinds(played(made)) == {("uplink-send", ("leaf0",))}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 12])
@pytest.mark.parametrize("apart", [False, True])
def test_rounds_of_uplinks_are_no_more_than_there_is_time_for(count: int, apart: bool) -> None:
    made = fabric(count, 2)
    names = [node.name for node in made.nodes]
    leaves = leaves_of(names, {n: f"leaf{made.leaf[i]}" for i, n in enumerate(names)})
    assert leaves is not None
    everything = uplink_rounds(leaves, 0, apart=apart)
    for most in range(len(everything) + 1):
        assert len(uplink_rounds(leaves, 0, apart=apart, most=most)) <= most
    assert uplink_rounds(leaves, 0, apart=apart, most=len(everything)) == everything


def test_levels() -> None:
    samples = {Pair(a, b): (1e9 if a // 2 == b // 2 else 0.25e9,) * 3
               for a in range(4) for b in range(4) if a != b}  # fmt: skip
    names = ["a", "b", "c", "d"]
    leaves = leaves_of(names, {"a": "x", "b": "x", "c": "y", "d": "y"})
    assert leaves is not None
    raised, share = level(matrix_of(names, samples), leaves, {})
    assert share == 0.25
    assert np.nanmin(raised.rates) == np.nanmax(raised.rates) == 1e9


def test_switches_that_tell_nothing_apart() -> None:
    assert leaves_of(["a", "b"], {}) is None
    assert leaves_of(["a", "b", "c"], {"a": "x", "b": "x", "c": "x"}) is None
    assert leaves_of(["a", "b", "c"], {"a": "x", "b": "x", "c": "y"}) is None
