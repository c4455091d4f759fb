"""What makes all of a run's numbers doubtful, or less precise than they look; clocks and paths."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

import pandas as pd

from analysis import fmt
from analysis.interconnect.collectives import CARRIED
from analysis.interconnect.facts import mtus, reported
from analysis.interconnect.finding import Finding
from analysis.interconnect.run import pairs_frame
from train.interconnect.facts.record import NodeFacts
from train.interconnect.record import BUSY, LEAST, TOGETHER, Tournament

#: Repeated samples of one pair may scatter so much, or nothing can be decided.
NOISE = 0.04
#: A run that would have missed a fault down to this share says nothing.
VISIBLE = 0.75
#: A baseline or a specification can stand in for the peers that two nodes lack.
TWO_ALONE = "two nodes"
#: Seconds; logs and time stamps of files are put in the wrong order by more. Munge refuses at 300.
CLOCK_S = 1.0


def doubts(tournament: Tournament, facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Findings about the run itself."""
    decision, noise = tournament.decision, tournament.noise
    seen = {"nodes": decision.visible, "links": decision.visible_links,
            "uplinks": decision.visible_uplinks}  # fmt: skip
    if decision.undecided:
        what = TWO_ALONE if len(tournament.nodes) == 2 else "peers"
        yield Finding("open", what, decision.undecided)
        seen = {}
    for name, visible in seen.items():
        if visible is not None and visible < VISIBLE:
            why = f"{name} scatter so much that only those below {visible:.2f} would have been seen"
            yield Finding("open", "scatter", why)
    good = [m for m in tournament.measurements if m.rates]
    busy = [m for m in good if any(end and end.is_busy for end in (m.at_sender, m.at_receiver))]
    if 2 * len(busy) > len(good):
        why = (f"in {len(busy)} of {len(good)} measurements an end computed for more than "
               f"{BUSY:.0%} of the time: what was measured is processors, not links")  # fmt: skip
        yield Finding("open", "cpu-limited", why)
    if noise is None:
        why = "no pair alone gave a number, so it is not known how steady this network is"
        yield Finding("open", "noise", why)
    elif noise.cv > NOISE:
        why = (f"samples of {' to '.join(noise.pair)} alone scatter by {noise.cv:.1%}, expected at "
               f"most {NOISE:.0%}: something else uses these nodes or links")  # fmt: skip
        yield Finding("open", "noise", why)
    if noise is not None and noise.together is not None and noise.together < TOGETHER:
        why = (f"pairs that run at the same time reach {noise.together:.2f} of their rate alone, "
               f"so no more than {tournament.company} were measured at once")  # fmt: skip
        yield Finding("remark" if noise.together else "open", "contention", why)
    yield from _coverage(tournament)
    yield from _interfaces(tournament)
    yield from _clocks(tournament)
    yield from _path_mtus(tournament, facts)
    yield from _other_fabric(tournament, facts)


def _coverage(tournament: Tournament) -> Iterator[Finding]:
    """Whether each node met enough others, both ways, to distinguish its sides from theirs."""
    there = {node.name for node in tournament.nodes} - set(tournament.lost)
    met = {(m.sender, m.receiver) for m in tournament.measurements
           if m.phase == "tournament" and {m.sender, m.receiver} <= there}  # fmt: skip
    sides = Counter(side for pair in met for side in enumerate(pair))
    least = min((sides[side, node] for node in there for side in (0, 1)), default=0)
    if len(there) > 1 and (tournament.cut is not None or least < len(there) - 1):
        cut = f"{tournament.cut}; " if tournament.cut else ""
        why = f"{cut}each node met {least} of {len(there) - 1} others or more"
        enough = least >= min(LEAST, len(there) - 1)
        yield Finding("remark" if enough else "open", "coverage", why)


def _interfaces(tournament: Tournament) -> Iterator[Finding]:
    """Whether the bytes went through the interfaces that were to be measured."""
    good = pairs_frame(tournament).dropna(subset="rate")
    measured = good["bytes"].mask(good["bytes"] == 0)
    ends = [pd.DataFrame({"node": good[end], "share": good[counted] / measured})
            for end, counted in {"sender": "sent_bytes",
                                 "receiver": "received_bytes"}.items()]  # fmt: skip
    for node, shares in pd.concat(ends).groupby("node")["share"]:
        if (shares < CARRIED).any():
            why = f"its interface carried {shares.min():.0%} of what was sent: it took another way"
            yield Finding("open", "interface", why, (str(node),))
        if shares.isna().any():
            why = "its byte counters could not be read: no proof of the way taken"
            yield Finding("open", "interface", why, (str(node),))


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
    usual = statistics.mode(paths.values()) if paths else 0
    own = mtus(facts)
    small = [f"{a} -> {b}: {size}" for (a, b), size in sorted(paths.items())
             if size < min(own.get(a, usual), own.get(b, usual))]  # fmt: skip
    if small:
        why = (f"{len(small)} of {len(paths)} paths take smaller packets than their interfaces or "
               f"most paths do ({fmt.first_of(small, 3)})")  # fmt: skip
        yield Finding("remark" if len(small) == len(paths) else "open", "path MTU", why)


def _other_fabric(tournament: Tournament, facts: Sequence[NodeFacts]) -> Iterator[Finding]:
    """InfiniBand ports that are up, and pairs that were measured over something else."""
    nodes = reported(facts).values()
    up = {
        name.removesuffix(" state")
        for node in nodes
        for (group, name), value in node.items()
        if name.endswith(" state") and value == "ACTIVE"
        and node.get((group, name.removesuffix("state") + "link layer")) == "InfiniBand"
    }  # fmt: skip
    links = {node.get(("network", "link type")) for node in nodes}
    if not up or links <= {"InfiniBand", None}:
        return
    used = ", ".join(sorted({node.interface for node in tournament.nodes}))
    why = (f"InfiniBand ports are up ({', '.join(sorted(up))}), but pairs were measured over "
           f"{used}: INTERFACE=ib0, or its name here, measures pairs of that fabric")  # fmt: skip
    yield Finding("open", "RDMA", why)
