"""The second look at a suspect on a fabric of known truth: a fake network, real decisions."""

from __future__ import annotations

import asyncio

import pytest

from train.interconnect.diagnosis.retest import look_again
from train.interconnect.measure.rounds import Pair, Round
from train.interconnect.record import End, Kind, Measurement, Retest, Suspect

NAMES = ["a", "b", "c", "d"]


class FakeFabric:
    """Measures by table. rates: of a pair, else 100; ends: what a node's process had to endure."""

    def __init__(self, rates: dict[tuple[str, str], float], **ends: tuple[float, float]) -> None:
        self.rates, self.ends = rates, ends
        self.asked: list[tuple[str, str]] = []

    async def run(self, pairs: Round, phase: str) -> list[Measurement]:
        assert phase == "retest" and len(pairs) == 1, "nothing runs beside a suspect"
        return [self.measure(pair) for pair in pairs]

    def measure(self, pair: Pair) -> Measurement:
        sender, receiver = NAMES[pair.sender], NAMES[pair.receiver]
        self.asked.append((sender, receiver))
        rate = self.rates.get((sender, receiver), 100.0)
        told = {"sender": sender, "receiver": receiver, "phase": "retest", "together": 1}
        if rate == 0:
            return Measurement(**told, error="no route to host")
        return Measurement(**told, rates=(rate,) * 3, bytes=1, at_sender=self.end(sender),
                           at_receiver=self.end(receiver))  # fmt: skip

    def end(self, name: str) -> End:
        busy, waited = self.ends.get(name, (0.05, 0.0))
        return End(cpu_s=busy, waited_s=waited, wall_s=1.0, received_bytes=1, sent_bytes=1)


def look(fabric: FakeFabric, kind: Kind, *nodes: str, healthy: str = "abcd") -> Retest:
    suspect = Suspect(
        kind=kind, nodes=nodes, ratio=0.5, deviations=-9, slow=3, partners=3, why="slow"
    )
    well = [NAMES.index(name) for name in healthy if name not in nodes]
    return asyncio.run(look_again(fabric.run, NAMES, suspect, well, 0))


def both_ways(name: str, rate: float) -> dict[tuple[str, str], float]:
    return {pair: rate for other in NAMES for pair in ((name, other), (other, name))}


def test_a_slow_node_is_slow_again() -> None:
    found = look(FakeFabric(both_ways("c", 50.0)), "node", "c")
    assert (found.outcome, found.kind, found.ratio) == ("confirmed", "node", 0.5)
    assert set(found.partners) == {"a", "b"}


def test_only_the_direction_that_is_still_slow_is_left() -> None:
    sends = {("c", other): 50.0 for other in NAMES}
    found = look(FakeFabric(sends), "node", "c")
    assert (found.outcome, found.kind) == ("confirmed", "send")
    receives = {(other, "c"): 50.0 for other in NAMES}
    assert look(FakeFabric(receives), "node", "c").kind == "receive"


def test_a_direction_is_measured_in_that_direction_only() -> None:
    fabric = FakeFabric({})
    look(fabric, "send", "c")
    assert {pair for pair in fabric.asked if "c" in pair} == {("c", "a"), ("c", "b")}


def test_one_good_partner_clears_a_node() -> None:
    """With b it is slow: then it is the path to b, which the tournament's links tell."""
    found = look(FakeFabric({("c", "b"): 50.0, ("b", "c"): 50.0}), "node", "c")
    assert found.outcome == "recovered" and found.ratio == 1.0


def test_what_recovers_alone_was_contention() -> None:
    found = look(FakeFabric({}), "node", "c")
    assert found.outcome == "recovered" and "contention" in found.why


@pytest.mark.parametrize(
    ("rate", "end", "outcome"),
    [
        (50.0, (0.05, 0.5), "cpu"),  # half of the time without a core: half of the rate
        (50.0, (0.95, 0.0), "cpu"),  # computes all the time
        (50.0, (0.05, 0.11), "confirmed"),  # a tenth of the time is no half of the rate
        (50.0, (0.3, 0.0), "confirmed"),
    ],
)
def test_want_of_processor_time_excuses_as_much_as_it_explains(rate, end, outcome) -> None:
    found = look(FakeFabric(both_ways("c", rate), c=end), "node", "c")
    assert found.outcome == outcome


def test_waiting_that_does_not_slow_healthy_pairs_is_no_excuse() -> None:
    fabric = FakeFabric(both_ways("c", 85.0), **dict.fromkeys("abcd", (0.05, 0.16)))
    assert look(fabric, "node", "c").outcome == "confirmed"
    fabric = FakeFabric(both_ways("c", 85.0), c=(0.05, 0.3), a=(0.05, 0.1), b=(0.05, 0.1))
    assert look(fabric, "node", "c").outcome == "cpu"


def test_what_repetitions_scatter_by_is_no_fault() -> None:
    class Rough(FakeFabric):
        def measure(self, pair: Pair) -> Measurement:
            found = super().measure(pair)
            return found.model_copy(update={"rates": tuple(
                found.rates[0] * share for share in (0.8, 0.92, 1.0, 1.08, 1.2)
            )})  # fmt: skip

    found = look(Rough(both_ways("c", 85.0)), "node", "c")
    assert found.outcome == "unsure" and "may be chance" in found.why
    assert look(Rough(both_ways("c", 40.0)), "node", "c").outcome == "confirmed"
    assert look(FakeFabric(both_ways("c", 85.0)), "node", "c").outcome == "confirmed"


def test_a_link_is_compared_with_what_its_ends_do_with_others() -> None:
    fabric = FakeFabric({("a", "b"): 50.0} | {("a", "c"): 80.0, ("a", "d"): 80.0})
    found = look(fabric, "link", "a", "b")
    assert found.outcome == "confirmed" and found.ratio == pytest.approx(50 / 80)


def test_a_link_that_is_as_fast_as_its_slower_end_is_no_fault() -> None:
    fabric = FakeFabric({("a", other): 50.0 for other in NAMES})
    assert look(fabric, "link", "a", "b").outcome == "recovered"


def test_of_two_nodes_the_other_direction_is_the_measure() -> None:
    found = look(FakeFabric({("a", "b"): 50.0}), "link", "a", "b", healthy="")
    assert found.outcome == "confirmed" and found.ratio == 0.5


def test_what_cannot_be_reached_any_more() -> None:
    found = look(FakeFabric(both_ways("c", 0.0)), "node", "c")
    assert found.outcome == "unreachable" and found.why == "no route to host"


def test_without_two_healthy_nodes_there_is_nothing_to_compare_with() -> None:
    found = look(FakeFabric(both_ways("c", 50.0)), "node", "c", healthy="a")
    assert found.outcome == "unreachable" and "no healthy pair" in found.why
