"""What makes all of a run's numbers doubtful, or less precise than they look; clocks and paths."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from analysis.interconnect.collectives import CARRIED
from analysis.interconnect.finding import Finding
from analysis.table import first_of
from train.interconnect.facts.record import NodeFacts
from train.interconnect.record import BUSY, LEAST, TOGETHER, Measurement, Tournament

#: Repeated samples of one pair may scatter so much, or nothing can be decided.
NOISE = 0.04
#: A run that would have missed a fault down to this share says nothing.
VISIBLE = 0.75
#: A baseline or a specification can stand in for the peers that two nodes lack.
TWO_ALONE = "two nodes"
#: Seconds; logs and time stamps of files are put in the wrong order by more. Munge refuses at 300.
CLOCK_S = 1.0
_SHOWN = 3


def doubts(tournament: Tournament) -> Iterator[Finding]:
    """Findings about the run itself."""
    decision = tournament.decision
    if decision.undecided:
        alone = len(tournament.nodes) == 2
        what = TWO_ALONE if alone else "peers"
        yield Finding("open", what, decision.undecided)
    seen = {"nodes": decision.visible, "links": decision.visible_links,
            "uplinks": decision.visible_uplinks}  # fmt: skip
    for what, visible in seen.items():
        if not decision.undecided and visible is not None and visible < VISIBLE:
            yield Finding(
                "open", "scatter",
                f"{what} scatter so much that only faults below {visible:.2f} of what is "
                "usual would have been seen",
            )  # fmt: skip
    good = [m for m in tournament.measurements if m.rates]
    busy = [m for m in good if any(end and end.is_busy for end in (m.at_sender, m.at_receiver))]
    if good and 2 * len(busy) > len(good):
        yield Finding(
            "open", "cpu-limited",
            f"in {len(busy)} of {len(good)} measurements an end computed for more than "
            f"{BUSY:.0%} of the time: what was measured is processors, not links",
        )  # fmt: skip
    if tournament.noise is None:
        why = "no pair alone gave a number, so it is not known how steady this network is"
        yield Finding("open", "noise", why)
    elif tournament.noise.cv > NOISE:
        yield Finding(
            "open", "noise",
            f"repeated samples of {' to '.join(tournament.noise.pair)} alone scatter by "
            f"{tournament.noise.cv:.1%}, expected at most {NOISE:.0%}: something else uses these "
            "nodes or links",
        )  # fmt: skip
    together = tournament.noise.together if tournament.noise is not None else None
    if together is not None and together < TOGETHER:
        yield Finding(
            "remark" if together else "open", "contention",
            f"pairs that run at the same time reach {together:.2f} of their rate alone, "
            f"so no more than {tournament.company} were measured at once: an oversubscribed "
            "fabric, or one machine",
        )  # fmt: skip
    yield from _coverage(tournament)
    yield from _interfaces(good)


def _coverage(tournament: Tournament) -> Iterator[Finding]:
    """Whether each node met enough others, both ways, to distinguish its sides from theirs."""
    there = {node.name for node in tournament.nodes} - set(tournament.lost)
    met = {(m.sender, m.receiver) for m in tournament.measurements
           if m.phase == "tournament" and {m.sender, m.receiver} <= there}  # fmt: skip
    sides = Counter(end for pair in met for end in zip(pair, ("send", "receive"), strict=True))
    least = min((sides[node, way] for node in there for way in ("send", "receive")), default=0)
    if len(there) > 1 and (tournament.cut is not None or least < len(there) - 1):
        enough = least >= min(LEAST, len(there) - 1)
        why = f"{tournament.cut}: a longer time limit, or fewer nodes, would measure more; "
        yield Finding(
            "remark" if enough else "open", "coverage",
            f"{why if tournament.cut else ''}each node met {least} of {len(there) - 1} others or "
            "more: a slow link may be another",
        )  # fmt: skip


def _interfaces(good: Sequence[Measurement]) -> Iterator[Finding]:
    """Whether the bytes went through the interfaces that were to be measured."""
    uncounted: set[str] = set()
    elsewhere: dict[str, float] = {}
    for m in good:
        sides = (
            (m.sender, m.at_sender.sent_bytes if m.at_sender else None),
            (m.receiver, m.at_receiver.received_bytes if m.at_receiver else None),
        )
        for node, carried in sides:
            if carried is None:
                uncounted.add(node)
            elif carried < CARRIED * m.bytes:
                elsewhere[node] = min(carried / m.bytes, elsewhere.get(node, 1.0))
    for node, share in sorted(elsewhere.items()):
        why = f"its interface carried {share:.0%} of what was sent: the traffic takes another way"
        yield Finding("open", "interface", why, (node,))
    for node in sorted(uncounted):
        why = "its byte counters could not be read: no proof of the way that was taken"
        yield Finding("open", "interface", why, (node,))


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
            why = f"its clock is {abs(off):.1f} s {'ahead of' if off > 0 else 'behind'} the others'"
            yield Finding("remark", "clock", why, (node,))


def _path_mtus(tournament: Tournament, facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Pairs whose packets must be smaller than both of their interfaces can send, or, where the
    nodes did not report it, smaller than those of most pairs."""
    paths = {(m.sender, m.receiver): m.tcp.path_mtu for m in tournament.measurements
             if m.tcp is not None and m.phase == "tournament"}  # fmt: skip
    own = {one.node: int(fact.value) for one in facts if one.when == "before" for fact in one.facts
           if fact.name == "MTU" and fact.value and fact.value.isdecimal()}  # fmt: skip
    usual = statistics.mode(paths.values()) if paths else 0
    small = [
        f"{a} -> {b}: {size}" for (a, b), size in sorted(paths.items())
        if size < (min(own[a], own[b]) if a in own and b in own else usual)
    ]  # fmt: skip
    if small:
        yield Finding(
            "remark" if len(small) == len(paths) else "open", "path MTU",
            f"{len(small)} of {len(paths)} paths take smaller packets than "
            + ("their interfaces do" if own else f"the others, {usual} bytes")
            + f" ({first_of(small, _SHOWN)})",
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
        "open", "RDMA",
        f"InfiniBand ports are up ({', '.join(sorted(set(up)))}), but pairs were measured "
        f"over {used}: only the collectives measured that fabric. INTERFACE=ib0, or "
        "its name here, measures its pairs",
    )  # fmt: skip
