"""Decisions on matrices whose truth is known, with the noise of real measurements."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from train.interconnect.diagnosis.decide import decide
from train.interconnect.diagnosis.statistics import Limits, matrix_of
from train.interconnect.measure.rounds import Pair, Round, both_ways, circle, some_partners
from train.interconnect.record import Decision

SAMPLES = 7


def everyone(count: int) -> list[Round]:
    return both_ways(circle(count))


class Fabric:
    """pair rate = min(send, receive, path): the truth."""

    def __init__(self, count: int) -> None:
        self.send, self.receive = np.full(count, 2e8), np.full(count, 2e8)
        self.path = np.full((count, count), 2e8)
        self.count = count

    def slow(self, node: int, share: float) -> Fabric:
        self.send[node] *= share
        self.receive[node] *= share
        return self

    def decide(self, noise: float, seed: int, partners: int | None = None) -> Decision:
        """noise: of a pair as such, by half, and of each sample."""
        rng = np.random.default_rng(seed)
        rounds = (
            everyone(self.count) if partners is None else some_partners(self.count, partners, seed)
        )
        samples = {
            pair: self.rate(pair) * (1 + noise / 2 * rng.normal())
            * (1 + noise * rng.normal(size=SAMPLES))
            for pairs in rounds for pair in pairs
        }  # fmt: skip
        return decide(matrix_of([f"n{i}" for i in range(self.count)], samples))

    def rate(self, pair: Pair) -> float:
        return min(self.send[pair.sender], self.receive[pair.receiver], self.path[pair])


def named(decision: Decision) -> set[tuple[str, ...]]:
    return {(suspect.kind, *suspect.nodes) for suspect in decision.suspects}


@pytest.mark.parametrize("count", [3, 4, 5, 8, 16, 33])
@pytest.mark.parametrize("share", [0.85, 0.5, 0.25])
@pytest.mark.parametrize("seed", range(5))
def test_one_slow_node_is_named_at_any_size(count: int, share: float, seed: int) -> None:
    found = Fabric(count).slow(count - 1, share).decide(0.01, seed)
    assert named(found) == {("node", f"n{count - 1}")}
    (suspect,) = found.suspects
    assert suspect.ratio == pytest.approx(share, abs=0.04)
    assert (suspect.slow, suspect.partners) == (count - 1, count - 1)


@pytest.mark.parametrize("count", [3, 4, 9, 32])
@pytest.mark.parametrize("way", ["send", "receive"])
def test_one_direction_of_a_node(count: int, way: str) -> None:
    fabric = Fabric(count)
    getattr(fabric, way)[1] *= 0.5
    assert named(fabric.decide(0.01, 3)) == {(way, "n1")}


@pytest.mark.parametrize("count", [3, 4, 9, 32])
def test_one_link_is_not_the_fault_of_its_ends(count: int) -> None:
    fabric = Fabric(count)
    fabric.path[0, 2] *= 0.5
    assert named(fabric.decide(0.01, 3)) == {("link", "n0", "n2")}


def test_a_slow_node_hides_no_slow_link() -> None:
    fabric = Fabric(8).slow(0, 0.5)
    fabric.path[3, 4] *= 0.25
    fabric.path[0, 1] *= 0.25
    assert named(fabric.decide(0.01, 1)) == {
        ("node", "n0"), ("link", "n3", "n4"), ("link", "n0", "n1"),
    }  # fmt: skip


@pytest.mark.parametrize("count", [3, 4, 8, 24])
@pytest.mark.parametrize("seed", range(10))
def test_nobody_is_named_where_all_are_well(count: int, seed: int) -> None:
    found = Fabric(count).decide(0.01, seed)
    assert found.suspects == () and found.undecided is None
    assert found.middle == pytest.approx(2e8, rel=0.02) and found.visible == 0.93


def test_noise_lowers_what_could_have_been_seen() -> None:
    assert Fabric(16).decide(0.08, 0).visible < 0.9


@pytest.mark.parametrize(("count", "bad"), [(4, 2), (5, 3), (8, 4)])
def test_half_of_the_nodes_slow_is_left_open(count: int, bad: int) -> None:
    fabric = Fabric(count)
    for node in range(bad):
        fabric.slow(node, 0.25)
    found = fabric.decide(0.01, 0)
    assert found.suspects == ()
    assert f"{bad} of {count} nodes (n0, n1" in found.undecided
    assert "0.25 of the others" in found.undecided and "peers cannot tell" in found.undecided


def test_two_of_eight_are_both_named() -> None:
    fabric = Fabric(8).slow(0, 0.5).slow(5, 0.5)
    assert named(fabric.decide(0.01, 2)) == {("node", "n0"), ("node", "n5")}


def test_a_few_partners_are_enough_of_many_nodes() -> None:
    fabric = Fabric(256).slow(7, 0.5).slow(100, 0.85)
    assert named(fabric.decide(0.01, 5, partners=8)) == {("node", "n7"), ("node", "n100")}


def test_two_nodes_show_only_a_difference_of_directions() -> None:
    found = Fabric(2).decide(0.01, 0)
    assert found.suspects == () and "only a baseline can tell" in found.undecided
    fabric = Fabric(2)
    fabric.path[1, 0] *= 0.5
    assert named(fabric.decide(0.01, 0)) == {("link", "n1", "n0")}


def matrix_with(failed: dict[Pair, str], count: int = 4):
    rates = {
        pair: [2e8] * SAMPLES for pairs in everyone(count) for pair in pairs if pair not in failed
    }
    return matrix_of([f"n{i}" for i in range(count)], rates, failed)


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        (lambda p: 2 in p, {("node", "n2")}),
        (lambda p: p.sender == 2, {("send", "n2")}),
        (lambda p: p == Pair(0, 1), {("link", "n0", "n1")}),
        (lambda p: 0 in p or 1 in p, {("node", "n0"), ("node", "n1")}),
    ],
)
def test_what_lets_nothing_through(fails: Callable[[Pair], bool], expected: set) -> None:
    failed = {p: "no route to host" for pairs in everyone(4) for p in pairs if fails(p)}
    found = decide(matrix_with(failed))
    assert named(found) == expected
    assert all(s.ratio is None and "no route to host" in s.why for s in found.suspects)


def test_nothing_measured_is_no_pass() -> None:
    assert decide(matrix_of(["a", "b", "c"], {})).undecided == "no pair was measured"


def test_the_scatter_of_repetitions_counts() -> None:
    """Three nodes that agree by chance make no suspect of a fourth that is within its own noise."""
    wide = np.linspace(0.4, 1.6, SAMPLES)
    samples = {
        pair: (1.6e8 if 3 in pair else 2e8) * wide for pairs in everyone(4) for pair in pairs
    }
    assert decide(matrix_of(list("abcd"), samples)).suspects == ()
    steady = {pair: np.full(SAMPLES, np.median(values)) for pair, values in samples.items()}
    assert named(decide(matrix_of(list("abcd"), steady))) == {("node", "d")}


@pytest.mark.parametrize("noise", [0.01, 0.02])
def test_false_alarms_and_detection(noise: float) -> None:
    """Before any retest: of 200 healthy runs, and of 200 with one node at 0.8."""
    alarms = sum(bool(Fabric(4).decide(noise, seed).suspects) for seed in range(200))
    found = sum(
        ("node", "n0") in named(Fabric(4).slow(0, 0.8).decide(noise, seed)) for seed in range(200)
    )
    assert alarms <= 2 and found >= 196


def test_limits_are_settings() -> None:
    rates = {p: [2e8 * (0.8 if 0 in p else 1)] * 3 for pairs in everyone(5) for p in pairs}
    matrix = matrix_of(list("abcde"), rates)
    assert decide(matrix).suspects and not decide(matrix, Limits(low=0.7)).suspects
