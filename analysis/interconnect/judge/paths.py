"""What the nodes' clocks and the paths between them are, beside fast or slow."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from analysis.interconnect.judge.finding import Finding
from train.interconnect.facts.record import NodeFacts
from train.interconnect.record import Tournament

#: Seconds; logs and time stamps of files are put in the wrong order by more. Munge refuses at 300.
CLOCK_S = 1.0
_SHOWN = 3


def path_findings(tournament: Tournament, facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    yield from _clocks(tournament)
    yield from _path_mtus(tournament, facts)
    yield from _other_fabric(tournament, facts)


def _clocks(tournament: Tournament) -> Iterator[Finding]:
    if len(tournament.clocks) < 2:
        return
    usual = statistics.median_low(clock.ahead_s for clock in tournament.clocks.values())
    for node, clock in sorted(tournament.clocks.items()):
        off = clock.ahead_s - usual
        if abs(off) - clock.within_s > CLOCK_S:
            evidence = (
                f"its clock is {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the others'"
            )
            yield Finding(weight="remark", what="clock", nodes=(node,), evidence=evidence)


def _path_mtus(tournament: Tournament, facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Pairs whose packets must be smaller than both of their interfaces can send, or, where the
    nodes did not report it, smaller than those of most pairs."""
    paths = {(m.sender, m.receiver): m.tcp.path_mtu for m in tournament.measurements
             if m.tcp is not None and m.phase == "tournament"}  # fmt: skip
    if not paths:
        return
    own = {one.node: int(fact.value) for one in facts if one.when == "before" for fact in one.facts
           if fact.name == "MTU" and fact.value and fact.value.isdecimal()}  # fmt: skip
    ((usual, _),) = Counter(paths.values()).most_common(1)
    small = [
        (f"{a} -> {b}: {size}", size) for (a, b), size in sorted(paths.items())
        if size < (min(own[a], own[b]) if a in own and b in own else usual)
    ]  # fmt: skip
    if small:
        shown = ", ".join(text for text, _ in small[:_SHOWN])
        every = len(small) == len(paths)
        yield Finding(
            weight="remark" if every else "open", what="path MTU",
            evidence=f"{len(small)} of {len(paths)} paths take smaller packets than "
            + ("their interfaces do" if own else f"the others, {usual} bytes")
            + f" ({shown}{', ...' if len(small) > _SHOWN else ''})",
        )  # fmt: skip


def _other_fabric(tournament: Tournament, facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """InfiniBand ports that are up, and pairs that were measured over something else."""
    reported = [{f.name: f.value for f in one.facts} for one in facts if one.when == "before"]
    up = [
        name.removesuffix(" state")
        for node in reported
        for name, value in node.items()
        if name.endswith(" state") and not name.endswith("physical state") and value == "ACTIVE"
        and node.get(name.removesuffix("state") + "link layer") == "InfiniBand"
    ]  # fmt: skip
    if not up or {node.get("link type") for node in reported} <= {"InfiniBand", None}:
        return
    used = ", ".join(sorted({node.interface for node in tournament.nodes}))
    yield Finding(
        weight="open", what="RDMA",
        evidence=f"InfiniBand ports are up ({', '.join(sorted(set(up)))}), but pairs were measured "
        f"over {used}: only the collectives measured that fabric. INTERFACE=ib0, or "
        "its name here, measures its pairs",
    )  # fmt: skip
