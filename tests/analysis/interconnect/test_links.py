"""What links should give, by their specification or by what nodes say."""

from __future__ import annotations

import pytest

from analysis.interconnect.links import against_spec, expected, goodput
from analysis.interconnect.verdict import Yardstick, judge
from tests.analysis.interconnect.runs import end, facts_of, node_facts, run, tournament

FACTS = facts_of("abcd", MTU="1500", driver="mlx5_core")
GOOD = run(tournament(), facts=FACTS)


def test_a_specification_is_what_headers_leave_of_the_line() -> None:
    assert goodput(1e9, 1500) == pytest.approx(1e9 * 1448 / 1538)
    assert goodput(1e9, 9000) == pytest.approx(1e9 * 8948 / 9038)
    (good,) = against_spec(GOOD, 2.1e8)
    assert good.weight == "remark"
    (bad,) = against_spec(GOOD, 1e9)
    assert bad.weight == "fault" and bad.ratio == pytest.approx(0.2 * 1538 / 1448, rel=1e-3)
    assert judge(GOOD, Yardstick(line_bits=1e9)).status == "FAIL"


def test_processors_that_are_the_limit_do_not_fail_the_links() -> None:
    """One stream of Python cannot fill 100 Gbit/s: the verdict is that it cannot tell."""
    busy = {(a, b): {"at_sender": end(busy=0.99)} for a in "abcd" for b in "abcd" if a != b}
    verdict = judge(run(tournament(changes=busy), facts=FACTS), Yardstick(line_bits=100e9))
    assert verdict.status == "UNDECIDED"
    assert {f.what for f in verdict.findings if f.weight == "open"} == {"cpu-limited", "below spec"}


def test_links_that_were_hardly_loaded_are_no_pass() -> None:
    claims = {"speed,_Mbit/s": "100000", "driver": "mlx5_core"}
    verdict = judge(run(tournament(), facts=facts_of("abcd", **claims)))
    assert verdict.status == "UNDECIDED"
    assert "0.2 Gbit/s of links of 100 Gbit/s" in verdict.findings[-1].evidence


def test_one_stream_is_no_proof_against_a_fast_line() -> None:
    (found,) = against_spec(GOOD, 100e9)
    assert (found.weight, found.what) == ("open", "below spec")
    many = run(tournament(streams=16), facts=FACTS)
    (found,) = against_spec(many, 100e9)
    assert found.weight == "fault"


def test_what_links_should_give_is_known_from_the_nodes_or_told() -> None:
    claims = {"speed,_Mbit/s": "25000", "MTU": "9000"}
    assert expected([node_facts("a", **claims)]) is None, "a virtual interface claims any speed"
    found = expected([node_facts("a", driver="mlx5_core", **claims)])
    assert found is not None
    assert found.levels == [("line", 25e9), ("80 % of it", 20e9)]
    assert found.goodput == pytest.approx(24.75e9, rel=1e-3)
    port = [node_facts("a", **{"mlx5_0:1_rate": "200 Gb/sec (4X HDR)"})]
    told = expected(port)
    assert told is not None and told.line == 200e9
    assert expected([node_facts("a", MTU="1500")]) is None
