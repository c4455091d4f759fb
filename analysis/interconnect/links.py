"""What links of known speed should give, from headers and a rule of thumb.

One way and per node. ``goodput``: what TCP's headers leave of an Ethernet line (1448 of 1538 bytes
at MTU 1500, 8948 of 9038 at 9000). COLLECTIVE: of the specification, the usual rule (ml-engineering
by S. Bekman).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from analysis.interconnect.finding import Finding
from analysis.interconnect.run import Run
from train.interconnect.facts.record import NodeFacts

COLLECTIVE = 0.80
_OVERHEAD = 1538 - 1500  # Ethernet's own, gap and preamble included
_HEADERS = 52  # IPv4, TCP with time stamps
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
#: Of a link's rate, one TCP stream's payload is to reach this share of what headers leave.
SPEC = 0.90
#: bit/s that one TCP stream of this program fills for certain, whatever processors there are.
ONE_STREAM = 10e9
#: Links that are loaded less than this share of their rate hide what they lack.
LOADED = 0.5


class Expected(NamedTuple):
    """bit/s. line: as the interface says, or as given; goodput: what its headers leave."""

    line: float
    goodput: float

    @property
    def levels(self) -> list[tuple[str, float]]:
        return [("line", self.line), ("80 % of it", COLLECTIVE * self.line)]


def goodput(line: float, mtu: int) -> float:
    return line * (mtu - _HEADERS) / (mtu + _OVERHEAD)


def expected(facts: Sequence[NodeFacts], line_bits: float | None = None) -> Expected | None:
    """From the specification where one is given, else the slowest speed that an interface claims;
    None: neither is known, as for virtual interfaces."""
    mtu = min((int(v) for v in _values(facts, "MTU") if v.isdecimal()), default=1500)
    # a virtual interface, which has no driver, claims any speed
    real = [one for one in facts if _values([one], "driver")]
    speeds = [1e6 * int(v) for v in _values(real, "speed, Mbit/s") if v.isdecimal()]
    ports = (re.match(r"([\d.]+) Gb", value) for value in _values(facts, " rate"))
    rates = [1e9 * float(port[1]) for port in ports if port]
    line = line_bits or min(speeds or rates, default=None)
    return None if line is None else Expected(line, goodput(line, mtu))


def _values(facts: Sequence[NodeFacts], ending: str) -> list[str]:
    return [
        fact.value
        for one in facts
        for fact in one.facts
        if fact.value is not None and fact.name.endswith(ending)
    ]


def read_rate(text: str) -> float:
    """bit/s of what tc and ethtool would write: ``200mbit``, ``100 Gbit``.

    Raises:
        ValueError: it is not of that form.
    """
    parsed = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?bit)(?:/s)?\s*", text.lower())
    if parsed is None or float(parsed[1]) == 0:
        raise ValueError(f"found a rate of {text!r}, expected one like 200mbit or 100gbit")
    return float(parsed[1]) * _BITS[parsed[2]]


def loaded(run: Run) -> Iterator[Finding]:
    """Whether the links were loaded at all, where their speed is known."""
    middle = run.tournament.decision.middle if run.tournament else None
    likely = expected(run.facts)
    if middle is None or likely is None or middle >= LOADED * likely.goodput:
        return
    yield Finding(
        "open", "not loaded",
        f"the median side reaches {middle / 1e9:.3g} Gbit/s of links of "
        f"{likely.line / 1e9:.4g} Gbit/s: a link that lost half of its rate would not be seen",
        ratio=middle / likely.goodput,
    )  # fmt: skip


def against_spec(run: Run, line_bits: float) -> Iterator[Finding]:
    """line_bits: of the link as it is sold, bit/s, one way."""
    middle = run.tournament.decision.middle if run.tournament else None
    likely = expected(run.facts, line_bits)
    if middle is None or likely is None:
        return
    share = middle / likely.goodput
    why = (f"the median side reaches {middle / 1e6:.4g} Mbit/s, {share:.2f} of what headers leave "
           f"of {line_bits / 1e6:.4g} Mbit/s")  # fmt: skip
    # a faster line is not to be blamed for what one stream does not fill
    assert run.tournament is not None
    sure = likely.goodput <= ONE_STREAM * run.tournament.streams
    if share >= SPEC:
        yield Finding("remark", "spec", why, ratio=share)
    else:
        yield Finding("fault" if sure else "open", "below spec", why, ratio=share)
