"""Calibration on simulated networks: few false alarms, faults named, and what is simulated."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from train.interconnect.measure.rounds import Pair
from train.interconnect.measure.stream import Plan
from train.interconnect.record import End
from train.interconnect.simulate import Noise, SimulatedFabric, blamed_in, calibrate, main
from train.interconnect.tournament import play

STEADY, ROUGH = Noise(0.005, 0.01), Noise(0.015, 0.03)


@pytest.mark.parametrize("count", [3, 4, 8])
def test_nobody_is_blamed_on_a_healthy_network_even_a_rough_one(count: int) -> None:
    for noise in (STEADY, ROUGH):
        (healthy,) = calibrate(count, noise, [1.0], 40)
        assert healthy.wrong == 0 and healthy.trials == 40


@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_slow_node_is_named_and_nobody_else(count: int) -> None:
    for share in (0.85, 0.5, 0.25):
        (row,) = calibrate(count, STEADY, [share], 20)
        assert (row.named, row.wrong) == (20, 0)


def test_many_nodes_take_few_rounds() -> None:
    (row,) = calibrate(300, STEADY, [0.5], 2)
    assert (row.named, row.wrong) == (2, 0) and row.rounds < 40


def test_a_slow_link_is_named_too() -> None:
    fabric = SimulatedFabric(6, STEADY, 1)
    fabric.path[Pair(2, 4)] = 0.5e10
    found = asyncio.run(play(fabric, Plan(), 0, lambda _: None))
    assert blamed_in(found) == {("n2", "n4")}


def test_the_noise_is_what_was_asked_for() -> None:
    fabric = SimulatedFabric(40, Noise(0.05, 0.01), 3)
    pairs = tuple(Pair(a, b) for a in range(40) for b in range(40) if a != b)
    found = asyncio.run(fabric.measure(pairs, Plan(samples=50), "tournament"))
    medians = np.array([np.median(m.rates) for m in found]) / 1e10
    assert np.std(medians) == pytest.approx(0.05, rel=0.1)
    within = [np.std(m.rates) / np.mean(m.rates) for m in found]
    assert np.mean(within) == pytest.approx(0.01, rel=0.1)


def test_the_table(capsys) -> None:
    options = ["--nodes", "4", "--noise", "0.01", "--shares", "1", "0.5", "--trials", "3"]
    assert main(options) == 0
    head, healthy, slow = capsys.readouterr().out.splitlines()
    assert head.startswith("nodes  noise  slow one   named right")
    assert healthy.split()[:5] == ["4", "1.0%", "none", "-", "0.0%"]
    assert slow.split()[:5] == ["4", "1.0%", "0.5", "100.0%", "0.0%"]
    wrong = "--nodes 2", "--leaves 2", "--nodes 9 --leaves 4", "--shares 1.5", "--noise=-1"
    for options in wrong:
        with pytest.raises(SystemExit):
            main(options.split())


def test_a_slow_uplink_is_named_and_nobody_else() -> None:
    for leaves in (3, 4):
        healthy, slow = calibrate(4 * leaves, STEADY, [1.0, 0.75], 6, leaves)
        assert (healthy.wrong, slow.named, slow.wrong) == (0, 6, 0)


def test_more_connections_are_used_where_one_is_the_limit_of_a_processor() -> None:
    class OfProcessors(SimulatedFabric):
        """A connection reaches a tenth of the link and keeps a core busy."""

        async def measure(self, pairs, plan, phase):
            self.used.append(plan.streams)
            found = await super().measure(pairs, plan, phase)
            share, busy = (
                min(1.0, plan.streams / 10),
                End(cpu_s=0.9, waited_s=0, wall_s=1, received_bytes=None, sent_bytes=None),
            )
            return [
                m.model_copy(update={"rates": tuple(r * share for r in m.rates),
                                     "at_receiver": busy if share < 1 else m.at_receiver})
                for m in found
            ]  # fmt: skip

    fabric = OfProcessors(4, STEADY, 0)
    fabric.used = []
    fabric.send[2] *= 0.5
    found = asyncio.run(play(fabric, Plan(), 0, lambda _: None))
    assert fabric.used[:6] == [1, 4, 16] * 2, "two pairs that share no node are asked"
    assert set(fabric.used[6:]) == {16}
    assert found.streams == 16 and blamed_in(found) == {("n2",)}
    plain = SimulatedFabric(4, STEADY, 0)
    assert asyncio.run(play(plain, Plan(), 0, lambda _: None)).streams == 1


@pytest.mark.parametrize("slow", range(4))
def test_a_slow_node_does_not_decide_for_all_how_many_connections_they_need(slow: int) -> None:
    """One connection fills 0.6 of a link, and the slow node's link has no more: asked alone, it
    gains nothing from another one, and by one connection each all nodes are alike."""

    class Capped(SimulatedFabric):
        async def measure(self, pairs, plan, phase):
            found = await super().measure(pairs, plan, phase)
            busy = End(cpu_s=0.5, waited_s=0, wall_s=1, received_bytes=None, sent_bytes=None)
            most = 0.6e10 * plan.streams
            return [
                m.model_copy(update={"rates": tuple(min(r, most) for r in m.rates),
                                     "at_receiver": busy})
                for m in found
            ]  # fmt: skip

    fabric = Capped(4, STEADY, 0)
    fabric.send[slow] *= 0.6
    fabric.receive[slow] *= 0.6
    found = asyncio.run(play(fabric, Plan(), 0, lambda _: None))
    assert found.streams == 4 and blamed_in(found) == {(f"n{slow}",)}


def test_a_node_that_is_gone_is_nobody_to_be_compared_with() -> None:
    class Dying(SimulatedFabric):
        """n0 answers nobody from round 8 on, as a node whose power was cut."""

        @property
        def lost(self):
            return {"n0": "no answer"} if self.rounds >= 8 else {}

        async def measure(self, pairs, plan, phase):
            found = await super().measure(pairs, plan, phase)
            dead = {"rates": (), "error": "no answer"}
            return [
                m.model_copy(update=dead) if self.lost and "n0" in (m.sender, m.receiver) else m
                for m in found
            ]

    for slow in (1, 2, 5):
        fabric = Dying(6, STEADY, slow)
        fabric.send[slow] *= 0.5
        fabric.receive[slow] *= 0.5
        found = asyncio.run(play(fabric, Plan(), slow, lambda _: None))
        assert set(found.lost) == {"n0"} and blamed_in(found) == {(f"n{slow}",)}


@pytest.mark.parametrize(("leaves", "each"), [(2, 4), (2, 8), (3, 4)])
@pytest.mark.parametrize("into", [True, False])
def test_all_paths_from_a_leaf_to_one_node_are_no_measure_for_each_other(
    leaves: int, each: int, into: bool
) -> None:
    """One cable of an uplink, where routes are chosen by their end: its own leaf's pairs hold up
    the node's side, and no uplink is slow as a whole."""
    fabric = SimulatedFabric(leaves * each, STEADY, 0)
    fabric.leaf = [node // each for node in range(leaves * each)]
    slow = [Pair(a, each) if into else Pair(each, a) for a in range(each)]
    fabric.path = dict.fromkeys(slow, 0.5e10)
    names = [node.name for node in fabric.nodes]
    switches = {name: f"leaf{fabric.leaf[i]}" for i, name in enumerate(names)}
    found = asyncio.run(play(fabric, Plan(), 0, lambda _: None, switches))
    assert blamed_in(found) == {(names[a], names[b]) for a, b in slow}


@pytest.mark.parametrize("each", [4, 8])
def test_retests_compare_pairs_of_one_leaf_with_each_other(each: int) -> None:
    """Between leaves a pair has half of the rate by design, alone as in company."""

    class TwoLeaves(SimulatedFabric):
        def _share(self, pair, pairs):
            return 0.5e10 if self.leaf[pair.sender] != self.leaf[pair.receiver] else float("inf")

    def played(fabric) -> set[tuple[str, ...]]:
        fabric.leaf = [node // each for node in range(2 * each)]
        switches = {n.name: f"leaf{fabric.leaf[i]}" for i, n in enumerate(fabric.nodes)}
        return blamed_in(asyncio.run(play(fabric, Plan(), 0, lambda _: None, switches)))

    healthy = TwoLeaves(2 * each, STEADY, 0)
    assert played(healthy) == set()
    link = TwoLeaves(2 * each, STEADY, 0)
    link.path[Pair(0, 1)] = 0.5e10
    assert played(link) == {(link.nodes[0].name, link.nodes[1].name)}
    node = TwoLeaves(2 * each, STEADY, 0)
    node.send[2] *= 0.4
    assert played(node) == {(node.nodes[2].name,)}

    small = TwoLeaves(2 * each, STEADY, 0)
    small.path[Pair(0, 1)] = 0.5e10
    small.leaf = [int(node > 1) for node in range(2 * each)]  # two nodes of a leaf have no others
    switches = {n.name: f"leaf{small.leaf[i]}" for i, n in enumerate(small.nodes)}
    found = asyncio.run(play(small, Plan(), 0, lambda _: None, switches))
    assert blamed_in(found) == {(small.nodes[0].name, small.nodes[1].name)}

    small.path[Pair(2, 3)] = 0.5e10  # and is not what another slow link is compared with
    small.leaf = [node // 2 for node in range(2 * each)]
    switches = {n.name: f"leaf{small.leaf[i]}" for i, n in enumerate(small.nodes)}
    found = asyncio.run(play(small, Plan(), 0, lambda _: None, switches))
    names = [node.name for node in small.nodes]
    both = {(names[0], names[1]), (names[2], names[3])}
    assert {s.nodes for s in found.decision.suspects} >= both
    assert not {r.nodes for r in found.retests if r.outcome == "recovered"} & both
    if each > 2:  # other leaves hold healthy pairs
        assert blamed_in(found) == both

    class Crowded(TwoLeaves):
        """Node 1 is slow in company only."""

        def _measure(self, pair, plan, phase, pairs):
            found = super()._measure(pair, plan, phase, pairs)
            if len(pairs) == 1 or 1 not in pair:
                return found
            return found.model_copy(update={"rates": tuple(0.85 * r for r in found.rates)})

    assert played(Crowded(2 * each, STEADY, 0)) == set()
