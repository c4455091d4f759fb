"""What links of known speed should give, from headers and a rule of thumb; one way, per node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from analysis.interconnect.facts import mtus, reported
from analysis.interconnect.finding import Finding, bits
from analysis.interconnect.run import Run
from train.interconnect.facts.record import NodeFacts

_OVERHEAD = 1538 - 1500  # Ethernet's own, gap and preamble included
_HEADERS = 52  # IPv4, TCP with time stamps
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
#: Of a link's rate, one TCP stream's payload is to reach this share of what headers leave.
SPEC = 0.90
#: bit/s that one TCP stream of this program fills for certain, whatever processors there are.
ONE_STREAM = 10e9
#: Links that are loaded less than this share of their rate hide what they lack.
LOADED = 0.5


def goodput(line: float, facts: Sequence[NodeFacts]) -> float:
    """What TCP's headers leave of an Ethernet line: 1448 of 1538 bytes at MTU 1500, 8948 of 9038 at
    9000."""
    mtu = min(mtus(facts).values(), default=1500)
    return line * (mtu - _HEADERS) / (mtu + _OVERHEAD)


def line_of(facts: Sequence[NodeFacts]) -> float | None:
    """bit/s, the slowest that an interface or an InfiniBand port claims; None: unknown."""
    nodes = reported(facts).values()
    # a virtual interface, which has no driver, claims any speed
    told = [one.get(("network", "speed, Mbit/s"), "") for one in nodes
            if ("network", "driver") in one]  # fmt: skip
    speeds = [1e6 * int(value) for value in told if value.isdecimal() and int(value)]
    ports = (re.match(r"([\d.]+) Gb", value) for one in nodes for (_, name), value in one.items()
             if name.endswith(" rate"))  # fmt: skip
    return min(speeds or [1e9 * float(port[1]) for port in ports if port], default=None)


def read_rate(text: str) -> float:
    """bit/s of what tc and ethtool would write: ``200mbit``, ``100 Gbit``.

    Raises:
        ValueError: it is not of that form.
    """
    parsed = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?bit)(?:/s)?\s*", text.lower())
    if parsed is None or float(parsed[1]) == 0:
        raise ValueError(f"found a rate of {text!r}, expected one like 200mbit or 100gbit")
    return float(parsed[1]) * _BITS[parsed[2]]


def speed_findings(run: Run, sold: float | None) -> Iterator[Finding]:
    """Whether the links were loaded at all, where nodes report their speed, and whether they reach
    that of links as ``sold``, bit/s, one way."""
    if run.tournament is None or (middle := run.tournament.decision.middle) is None:
        return
    line = line_of(run.facts)
    if line is not None and (share := middle / goodput(line, run.facts)) < LOADED:
        why = (f"the median side reaches {bits(middle)} of links of {bits(line)}: a link that lost "
               "half of its rate would not be seen")  # fmt: skip
        yield Finding("open", "not loaded", why, ratio=share)
    if sold is None:
        return
    full = goodput(sold, run.facts)
    share = middle / full
    why = (f"the median side reaches {bits(middle)}, {share:.2f} of what headers leave of "
           f"{bits(sold)}")  # fmt: skip
    if share >= SPEC:
        yield Finding("remark", "spec", why, ratio=share)
    else:  # a faster line is not to be blamed for what one stream does not fill
        sure = full <= ONE_STREAM * run.tournament.streams
        yield Finding("fault" if sure else "open", "below spec", why, ratio=share)
