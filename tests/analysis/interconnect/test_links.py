"""What links should give, by their specification or by what nodes say."""

from __future__ import annotations

import pytest

from analysis.interconnect.links import goodput, line_of, speed_findings
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import end, facts_of, node_facts, run, tournament
from train.interconnect.facts.record import Fact

FACTS = facts_of("abcd", MTU="1500", driver="mlx5_core")
GOOD = run(tournament(), facts=FACTS)


def test_a_specification_is_what_headers_leave_of_the_line() -> None:
    assert goodput(1e9, FACTS) == goodput(1e9, []) == pytest.approx(1e9 * 1448 / 1538)
    assert goodput(1e9, facts_of("ab", MTU="9000")) == pytest.approx(1e9 * 8948 / 9038)
    (good,) = speed_findings(GOOD, 2.1e8)
    assert good.weight == "remark"
    (bad,) = speed_findings(GOOD, 1e9)
    assert bad.weight == "fault" and bad.ratio == pytest.approx(0.2 * 1538 / 1448, rel=1e-3)
    assert judge(GOOD, line_bits=1e9).status == "FAIL"


def test_processors_that_are_the_limit_do_not_fail_the_links() -> None:
    """One stream of Python cannot fill 100 Gbit/s: the verdict is that it cannot tell."""
    busy = {(a, b): {"at_sender": end(busy=0.99)} for a in "abcd" for b in "abcd" if a != b}
    verdict = judge(run(tournament(changes=busy), facts=FACTS), line_bits=100e9)
    assert verdict.status == "UNDECIDED"
    assert {f.what for f in verdict.findings if f.weight == "open"} == {"cpu-limited", "below spec"}


def test_links_that_were_hardly_loaded_are_no_pass() -> None:
    claims = {"speed, Mbit/s": "100000", "driver": "mlx5_core"}
    verdict = judge(run(tournament(), facts=facts_of("abcd", **claims)))
    assert verdict.status == "UNDECIDED"
    assert "200 Mbit/s of links of 100 Gbit/s" in verdict.findings[-1].evidence


def test_one_stream_is_no_proof_against_a_fast_line() -> None:
    (found,) = speed_findings(GOOD, 100e9)
    assert (found.weight, found.what) == ("open", "below spec")
    many = run(tournament(streams=16), facts=FACTS)
    (found,) = speed_findings(many, 100e9)
    assert found.weight == "fault"


def test_the_speed_of_a_line_is_what_a_real_interface_or_a_port_says() -> None:
    claims = node_facts("a", **{"speed, Mbit/s": "25000"})
    gpu = Fact(group="gpu", name="driver", value="550.54")
    virtual = claims.model_copy(update={"facts": (*claims.facts, gpu)})
    assert line_of([claims]) is line_of([virtual]) is None, "a virtual interface claims any speed"
    assert line_of([claims, node_facts("b", **{"speed, Mbit/s": "9", "driver": "e1000"})]) == 9e6
    assert line_of([node_facts("a", **{"mlx5_0:1 rate": "200 Gb/sec (4X HDR)"})]) == 200e9
