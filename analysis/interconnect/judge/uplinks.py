"""Uplinks of leaf switches: which were not tested, which not fully loaded, what they all carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from analysis.interconnect.judge.doubts import VISIBLE
from analysis.interconnect.judge.finding import Finding
from train.interconnect.record import Tournament

#: Uplinks that carry this share of what their nodes reach carry all that these can send.
ALL = 0.93
#: Only a baseline of their uplinks can stand in for the peers that two leaves lack.
TWO_LEAVES = "two leaf switches"


def is_across(pair: Sequence[str], switches: Mapping[str, str]) -> bool:
    """Whether two nodes are on two leaf switches, as far as is known."""
    ends = {switches.get(node) for node in pair}
    return len(ends) > 1 and None not in ends


def uplink_findings(tournament: Tournament) -> Iterator[Finding]:
    """Of leaf switches that several of the nodes share: pairs alone do not load the others."""
    nodes = Counter(
        tournament.switches[n.name] for n in tournament.nodes if n.name in tournament.switches
    )
    shared = {leaf: count for leaf, count in nodes.items() if count > 1}
    if len(shared) < 2:
        return
    crossed = [m for m in tournament.measurements if m.phase == "uplinks"]
    tested = {tournament.switches[m.sender] for m in crossed}
    tested &= {tournament.switches[m.receiver] for m in crossed}
    if left := sorted(set(shared) - tested):
        yield Finding(
            weight="remark" if len(tested) > 1 else "open", what="uplinks not tested",
            evidence=f"{', '.join(left)}: too few nodes beside the largest leaf switch to "
            "be compared, or the time was over; run with as many nodes of each",
        )  # fmt: skip
    failed = [
        m for m in crossed if not m.rates and {m.sender, m.receiver}.isdisjoint(tournament.lost)
    ]
    if failed:
        first = failed[0]
        yield Finding(
            weight="open", what="uplinks failed",
            evidence=f"{len(failed)} of {len(crossed)} measurements of pairs that loaded uplinks "
            f"gave no number, first {first.sender} to {first.receiver}: {first.error}",
        )  # fmt: skip
    if len(tested) < 2:
        return
    width = min(shared[leaf] for leaf in tested)
    if larger := sorted(leaf for leaf in tested if shared[leaf] > width):
        most = max(shared[leaf] for leaf in larger)
        yield Finding(
            weight="remark", what="uplinks not loaded",
            evidence=f"uplinks were compared with {width} pairs at a time, as many as the smallest "
            f"leaf switch has nodes; {', '.join(larger)} have up to {most}: an uplink that lost up "
            f"to {1 - width / most:.0%} would not be seen",
        )  # fmt: skip
    yield from _alike(tournament, len(tested))
    yield from _unseen(tournament)


def _unseen(tournament: Tournament) -> Iterator[Finding]:
    """Where the fabric holds up pairs across, what else does is not seen."""
    seen = tournament.decision.visible_across
    if seen is not None and seen < VISIBLE:
        yield Finding(
            weight="remark", what="links across",
            evidence="a single link across leaf switches is seen only where it is below "
            f"{seen:.2f} of what is usual within them: above, the uplinks hold it up",
        )  # fmt: skip


def _alike(tournament: Tournament, tested: int) -> Iterator[Finding]:
    share = tournament.decision.crossing
    if share is None or share >= ALL:
        return
    alone = tested == 2
    yield Finding(
        weight="open" if alone else "remark", what=TWO_LEAVES if alone else "oversubscribed",
        ratio=share,
        evidence=f"whole leaf switches reach {share:.2f} of each other of what their nodes reach "
        "within them: as it was built, or uplinks that lost as much; only a baseline shows which",
    )  # fmt: skip
