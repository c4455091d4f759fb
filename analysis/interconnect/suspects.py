"""What became of suspects in their retest, and what uplinks of leaf switches carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from analysis import fmt
from analysis.interconnect.doubts import VISIBLE
from analysis.interconnect.finding import Finding, Weight
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
    switches, decision = tournament.switches, tournament.decision
    nodes = Counter(switches[n.name] for n in tournament.nodes if n.name in switches)
    shared = {leaf: count for leaf, count in nodes.items() if count > 1}
    if len(shared) < 2:
        return
    crossed = [m for m in tournament.measurements if m.phase == "uplinks"]
    tested = {switches[m.sender] for m in crossed} & {switches[m.receiver] for m in crossed}
    if left := sorted(set(shared) - tested):
        why = (f"{', '.join(left)}: too few nodes beside the largest leaf switch, or the time was "
               "over; run with as many nodes of each")  # fmt: skip
        yield Finding("remark" if len(tested) > 1 else "open", "uplinks not tested", why)
    failed = [f"{m.sender} to {m.receiver}: {m.error}" for m in crossed
              if not m.rates and {m.sender, m.receiver}.isdisjoint(tournament.lost)]  # fmt: skip
    if failed:
        why = f"{len(failed)} of {len(crossed)} measurements gave no number, first {failed[0]}"
        yield Finding("open", "uplinks failed", why)
    if len(tested) < 2:
        return
    hidden = []
    width, most = (of(shared[leaf] for leaf in tested) for of in (min, max))
    if larger := sorted(leaf for leaf in tested if shared[leaf] > width):
        hidden.append(
            f"{', '.join(larger)} have up to {most} nodes, and {width} pairs crossed at a time: an "
            f"uplink that lost up to {1 - width / most:.0%} would not be seen"
        )
    share, seen = decision.crossing, decision.visible_across
    if share is not None and share < ALL:
        why = (f"whole leaf switches reach {share:.2f} of each other of what their nodes reach "
               "within them: as it was built, or uplinks that lost as much; only a baseline shows "
               "which")  # fmt: skip
        if len(tested) == 2:
            yield Finding("open", TWO_LEAVES, why, ratio=share)
        else:
            hidden.append(why)
    if seen is not None and seen < VISIBLE:
        hidden.append(f"a single link across is seen only below {seen:.2f} of what is usual within")
    if hidden:
        yield Finding("remark", "uplinks", "; ".join(hidden))


def suspect_findings(tournament: Tournament) -> Iterator[Finding]:
    # a node's suspicion may be narrowed to one of its directions by the retest
    retests = {(r.nodes, r.kind.startswith("uplink")): r for r in tournament.retests}
    left: dict[bool, list[Suspect]] = {False: [], True: []}
    for suspect in tournament.decision.suspects:
        retest = retests.get((suspect.nodes, suspect.kind.startswith("uplink")))
        if suspect.ratio is None:
            if set(suspect.nodes).isdisjoint(tournament.lost):
                yield Finding("fault", "unreachable", suspect.why, suspect.nodes)
        elif suspect.kind == "link" and retest is None:
            left[is_across(suspect.nodes, tournament.switches)].append(suspect)
        else:
            yield _retested(suspect, retest, _or_else(suspect, tournament))
    # more links than are retested: by what became of the slowest of their kind
    for across, links in left.items():
        if not links:
            continue
        slowest = sorted(f"{link.ratio:.2f} {' -> '.join(link.nodes)}" for link in links)
        where = "across leaf switches " if across else ""
        evidence = f"{len(links)} more links {where}were slow ({fmt.first_of(slowest, 3)})"
        outcomes = {r.outcome for r in tournament.retests if r.kind == "link"
                    and is_across(r.nodes, tournament.switches) is across}  # fmt: skip
        if outcomes == {"recovered"}:
            why = f"{evidence}; the slowest were as fast as others alone: routes that collide"
            yield Finding("remark", "contention", why)
        else:
            yield Finding("open", "links", evidence)


def _or_else(suspect: Suspect, tournament: Tournament) -> str:
    """What a node that is alone on its leaf switch does not let tell apart."""
    switches, nodes = tournament.switches, set(suspect.nodes)
    leaves = {switches.get(node) for node in nodes}
    others = {node.name for node in tournament.nodes if switches.get(node.name) in leaves} - nodes
    if others or len(nodes) > 1 or None in leaves:
        return ""
    why = "so that the node, its link and the uplink are hard to tell apart"
    return f"; no other node of {leaves.pop()} was measured, {why}"


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
