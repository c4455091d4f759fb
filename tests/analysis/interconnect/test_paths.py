"""Clocks, path MTUs, and another fabric than the one that was measured."""

from __future__ import annotations

import pytest

from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import facts_of, run, tournament
from train.interconnect.record import Clock, Tcp


def tcp(path_mtu: int) -> Tcp:
    return Tcp(path_mtu=path_mtu, rtt_s=1e-4, min_rtt_s=1e-5, retransmitted=0, busy_s=1.0,
               rwnd_limited_s=0.0, sndbuf_limited_s=0.0)  # fmt: skip


def paths(small: dict[tuple[str, str], int], usual: int = 1500) -> dict[tuple[str, str], dict]:
    pairs = [(a, b) for a in "abcd" for b in "abcd" if a != b]
    return {pair: {"tcp": tcp(small.get(pair, usual))} for pair in pairs}


def test_a_clock_that_is_off_is_told_where_it_is_surely_off() -> None:
    clocks = {n: Clock(ahead_s=ahead, within_s=0.01)
              for n, ahead in zip("abcd", (0, 0.2, -5.0, 0.1), strict=True)}  # fmt: skip
    verdict = judge(run(tournament(clocks=clocks)))
    (found,) = verdict.findings
    assert (found.what, found.nodes, found.weight) == ("clock", ("c",), "remark")
    assert found.evidence == "its clock is 5.0 s behind the others'"
    vague = {n: clock.model_copy(update={"within_s": 6.0}) for n, clock in clocks.items()}
    assert judge(run(tournament(clocks=vague))).findings == ()


def test_a_path_of_smaller_packets_than_both_its_ends_take() -> None:
    facts = facts_of("abcd", MTU="9000")
    good = paths({}, 9000)
    assert judge(run(tournament(changes=good), facts=facts)).status == "PASS"
    verdict = judge(run(tournament(changes=paths({("a", "b"): 1500}, 9000)), facts=facts))
    (found,) = verdict.findings
    assert verdict.status == "UNDECIDED" and found.what == "path MTU"
    assert "1 of 12 paths" in found.evidence and "a -> b: 1500" in found.evidence
    # an overlay network, everywhere
    verdict = judge(run(tournament(changes=paths({}, 8950)), facts=facts))
    assert verdict.status == "PASS" and verdict.findings[0].what == "path MTU"


def test_without_facts_paths_are_compared_with_each_other() -> None:
    verdict = judge(run(tournament(changes=paths({("d", n): 1400 for n in "abc"}))))
    (found,) = verdict.findings
    assert verdict.status == "UNDECIDED" and "3 of 12 paths" in found.evidence


@pytest.mark.parametrize(
    ("link", "layer", "status"),
    [
        ("Ethernet", "InfiniBand", "UNDECIDED"),
        ("InfiniBand", "InfiniBand", "PASS"),
        ("Ethernet", "Ethernet", "PASS"),  # RoCE
        (None, "InfiniBand", "PASS"),  # not known
    ],
)
def test_an_infiniband_fabric_that_no_pair_was_measured_on(link, layer, status) -> None:
    told = {"link type": link, "mlx5_0:1 state": "ACTIVE", "mlx5_0:1 link layer": layer,
            "mlx5_0:1 physical state": "LinkUp"}  # fmt: skip
    verdict = judge(run(tournament(), facts=facts_of("abcd", **told)))
    assert verdict.status == status
    assert not verdict.findings or "mlx5_0:1" in verdict.findings[0].evidence
