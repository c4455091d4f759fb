"""What became of suspects in their retest, and what uplinks of leaf switches carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from analysis.interconnect.doubts import VISIBLE
from analysis.interconnect.finding import Finding, Weight
from analysis.table import first_of
from train.interconnect.record import Retest, Suspect, Tournament

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
            "remark" if len(tested) > 1 else "open", "uplinks not tested",
            f"{', '.join(left)}: too few nodes beside the largest leaf switch to be compared, or "
            "the time was over; run with as many nodes of each",
        )  # fmt: skip
    failed = [
        m for m in crossed if not m.rates and {m.sender, m.receiver}.isdisjoint(tournament.lost)
    ]
    if failed:
        first = failed[0]
        yield Finding(
            "open", "uplinks failed",
            f"{len(failed)} of {len(crossed)} measurements of pairs that loaded uplinks "
            f"gave no number, first {first.sender} to {first.receiver}: {first.error}",
        )  # fmt: skip
    if len(tested) < 2:
        return
    width = min(shared[leaf] for leaf in tested)
    if larger := sorted(leaf for leaf in tested if shared[leaf] > width):
        most = max(shared[leaf] for leaf in larger)
        yield Finding(
            "remark", "uplinks not loaded",
            f"uplinks were compared with {width} pairs at a time, as many as the smallest "
            f"leaf switch has nodes; {', '.join(larger)} have up to {most}: an uplink that lost up "
            f"to {1 - width / most:.0%} would not be seen",
        )  # fmt: skip
    share = tournament.decision.crossing
    if share is not None and share < ALL:
        alone = len(tested) == 2
        yield Finding(
            "open" if alone else "remark", TWO_LEAVES if alone else "oversubscribed",
            f"whole leaf switches reach {share:.2f} of each other of what their nodes reach within "
            "them: as it was built, or uplinks that lost as much; only a baseline shows which",
            ratio=share,
        )  # fmt: skip
    seen = tournament.decision.visible_across
    if seen is not None and seen < VISIBLE:
        yield Finding(
            "remark", "links across",
            "a single link across leaf switches is seen only where it is below "
            f"{seen:.2f} of what is usual within them: above, the uplinks hold it up",
        )  # fmt: skip


def suspect_findings(tournament: Tournament) -> Iterator[Finding]:
    retests = {(retest.nodes, _family(retest.kind)): retest for retest in tournament.retests}
    left = [s for s in tournament.decision.suspects if s.kind == "link" and s.ratio is not None
            and (s.nodes, "link") not in retests]  # fmt: skip
    links = [retest for retest in tournament.retests if retest.kind == "link"]
    for across in (False, True):
        some = [s for s in left if is_across(s.nodes, tournament.switches) is across]
        if some:
            like = [r for r in links if is_across(r.nodes, tournament.switches) is across]
            yield _links_left(some, like, "across leaf switches " if across else "")
    for suspect in tournament.decision.suspects:
        if suspect in left:
            continue
        if suspect.ratio is None:
            if set(suspect.nodes).isdisjoint(tournament.lost):
                yield Finding("fault", "unreachable", suspect.why, suspect.nodes)
            continue
        retest = retests.get((suspect.nodes, _family(suspect.kind)))
        or_else = _or_uplink(suspect, tournament) or _or_node(suspect, tournament)
        yield _retested(suspect, retest, or_else)


def _links_left(left: Sequence[Suspect], retests: Sequence[Retest], where: str) -> Finding:
    """More links than are retested: by what became of the slowest of their kind."""
    ratios = [suspect.ratio for suspect in left if suspect.ratio is not None]
    first = first_of([" -> ".join(suspect.nodes) for suspect in left], 3)
    evidence = f"{len(left)} more links {where}were slow ({min(ratios):.2f} and up: {first})"
    if retests and all(retest.outcome == "recovered" for retest in retests):
        slowest = f"the {len(retests)} slowest were as fast as others alone: routes that collide"
        return Finding("remark", "contention", f"{evidence}; {slowest}")
    return Finding("open", "links", evidence)


def _family(kind: str) -> str:
    """A node's suspicion may be narrowed to one of its directions by the retest."""
    return "link" if kind == "link" else "uplink" if kind.startswith("uplink") else "side"


def _or_uplink(suspect: Suspect, tournament: Tournament) -> str:
    """A node without others on its leaf switch cannot be distinguished from the switch's uplink."""
    if len(suspect.nodes) > 1 or (own := tournament.switches.get(suspect.nodes[0])) is None:
        return ""
    on = [tournament.switches.get(node.name) for node in tournament.nodes]
    return f"; or the uplink of {own}, where it is alone" if on.count(own) < 2 < len(on) else ""


def _or_node(suspect: Suspect, tournament: Tournament) -> str:
    """The only two nodes of a leaf switch have no others within it."""
    both = set(suspect.nodes)
    leaves = {tournament.switches.get(node) for node in both}
    if suspect.kind != "link" or None in leaves or len(leaves) > 1:
        return ""
    on = {node.name for node in tournament.nodes if tournament.switches.get(node.name) in leaves}
    ways = [r for r in tournament.retests if set(r.nodes) == both and r.outcome == "confirmed"]
    # where uplinks hold up all pairs across, they do not distinguish ends from link either
    held_up = (tournament.decision.across or 1.0) < ALL
    if on != both or (len(ways) < 2 and not held_up):
        return ""
    return "; or one of the two nodes, which have no others on their leaf switch"


def _retested(suspect: Suspect, retest: Retest | None, or_else: str) -> Finding:
    first = f"{suspect.ratio:.2f} of its peers"
    if suspect.kind != "link":
        first += f", with {suspect.slow} of {suspect.partners} partners"
    if retest is None:
        why = f"{first}; not retested"
        return Finding("open", suspect.kind, why, suspect.nodes, suspect.ratio)
    alone = f"{first}; alone"
    if retest.partners:
        alone += f" with {', '.join(retest.partners)}"
    if retest.ratio is not None:
        alone += f" {retest.ratio:.2f}"
    found: dict[str, tuple[Weight, str, str]] = {
        "confirmed": ("fault", retest.kind, f"{alone}{or_else}"),
        "unsure": ("open", retest.kind, f"{alone}: {retest.why}"),
        "recovered": (
            "remark", "contention", f"{alone}: slow only while others run, or the fault has passed"
        ),
        "cpu": ("open", "cpu", f"{first}; {retest.why}: the processor, not the link"),
        "unreachable": ("open", suspect.kind, f"{first}; then {retest.why}"),
    }  # fmt: skip
    return Finding(*found[retest.outcome], suspect.nodes, retest.ratio)
