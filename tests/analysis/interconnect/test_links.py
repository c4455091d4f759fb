"""What links should give, by their specification or by what nodes say."""

from __future__ import annotations

from itertools import permutations

import pytest

from analysis.interconnect.finding import bits, seconds, size
from analysis.interconnect.links import goodput, line_of
from analysis.interconnect.run import Run
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import end, facts_of, node_facts, run, said, tournament
from train.interconnect.facts.record import Fact

FACTS = facts_of("abcd", MTU="1500", driver="mlx5_core")
GOOD = run(tournament(), facts=FACTS)


BUSY = {pair: {"at_sender": end(busy=0.99)} for pair in permutations("abcd", 2)}
CLAIMS = facts_of("abcd", **{"speed, Mbit/s": "100000", "driver": "mlx5_core"})


def test_rates_have_three_digits_and_their_unit() -> None:
    rates = (999.7e6, 999.4e6, 12.34e9, 950.0)
    assert [bits(rate) for rate in rates] == ["1 Gbit/s", "999 Mbit/s", "12.3 Gbit/s", "950 bit/s"]
    assert [seconds(2.0), seconds(3e-5), size(2**20), size(8)] == ["2 s", "30 us", "1 MiB", "8 B"]


def test_headers_leave_less_of_a_line_the_smaller_packets_are() -> None:
    assert goodput(1e9, FACTS) == goodput(1e9, []) == pytest.approx(1e9 * 1448 / 1538)
    assert goodput(1e9, facts_of("ab", MTU="9000")) == pytest.approx(1e9 * 8948 / 9038)


@pytest.mark.parametrize(
    ("found", "sold", "findings", "words"),
    [
        (GOOD, 2.1e8, "remark spec", "200 Mbit/s, 1.01 of what headers leave of 210 Mbit/s"),
        (GOOD, 1e9, "fault below spec", "200 Mbit/s, 0.21 of"),
        # one stream of Python cannot fill 100 Gbit/s
        (GOOD, 100e9, "open below spec", ""),
        (run(tournament(streams=16), facts=FACTS), 100e9, "fault below spec", ""),
        (run(tournament(changes=BUSY), facts=FACTS), 1e9, "open cpu-limited; open below spec", ""),
        (run(tournament(), facts=CLAIMS), None, "open not loaded",
         "200 Mbit/s of links of 100 Gbit/s"),
    ],
)  # fmt: skip
def test_what_links_should_give(found: Run, sold: float | None, findings: str, words: str) -> None:
    verdict = judge(found, line_bits=sold)
    assert said(verdict) == findings and words in verdict.findings[-1].evidence


def test_the_speed_of_a_line_is_what_a_real_interface_or_a_port_says() -> None:
    claims = node_facts("a", **{"speed, Mbit/s": "25000"})
    gpu = Fact(group="gpu", name="driver", value="550.54")
    virtual = claims.model_copy(update={"facts": (*claims.facts, gpu)})
    assert line_of([claims]) is line_of([virtual]) is None, "a virtual interface claims any speed"
    assert line_of([claims, node_facts("b", **{"speed, Mbit/s": "9", "driver": "e1000"})]) == 9e6
    assert line_of([node_facts("a", **{"speed, Mbit/s": "0", "driver": "virtio_net"})]) is None
    assert line_of([node_facts("a", **{"mlx5_0:1 rate": "200 Gb/sec (4X HDR)"})]) == 200e9
