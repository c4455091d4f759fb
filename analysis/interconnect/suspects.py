"""What became of the suspects when they were measured again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.interconnect.finding import Finding
from analysis.interconnect.uplinks import ALL, is_across
from train.interconnect.record import Retest, Suspect, Tournament


def suspect_findings(found: Tournament) -> Iterator[Finding]:
    again = {(retest.nodes, _family(retest.kind)): retest for retest in found.retests}
    left = [s for s in found.decision.suspects if s.kind == "link" and s.ratio is not None
            and (s.nodes, "link") not in again]  # fmt: skip
    links = [retest for retest in found.retests if retest.kind == "link"]
    for across in (False, True):
        some = [s for s in left if is_across(s.nodes, found.switches) is across]
        if some:
            like = [r for r in links if is_across(r.nodes, found.switches) is across]
            yield _links_left(some, like, "across leaf switches " if across else "")
    for suspect in found.decision.suspects:
        if suspect in left:
            continue
        if suspect.ratio is None:
            if set(suspect.nodes).isdisjoint(found.lost):
                yield Finding(weight="fault", what="unreachable", nodes=suspect.nodes,
                              evidence=suspect.why)  # fmt: skip
            continue
        retest = again.get((suspect.nodes, _family(suspect.kind)))
        or_else = _or_uplink(suspect, found) or _or_node(suspect, found)
        yield _retested(suspect, retest, or_else)


def _links_left(left: Sequence[Suspect], retests: Sequence[Retest], where: str) -> Finding:
    """More links than are tested again: by what became of the slowest of their kind."""
    ratios = [suspect.ratio for suspect in left if suspect.ratio is not None]
    first = ", ".join(" -> ".join(suspect.nodes) for suspect in left[:3])
    said = f"{len(left)} more links {where}were slow ({min(ratios):.2f} and up: {first}"
    said += ", ...)" if len(left) > 3 else ")"
    passed = bool(retests) and all(retest.outcome == "recovered" for retest in retests)
    if passed:
        said += f"; the {len(retests)} slowest were as fast as others alone: collisions of routes"
    return Finding(weight="remark" if passed else "open",
                   what="contention" if passed else "links", evidence=said)  # fmt: skip


def _family(kind: str) -> str:
    """A node's suspicion may be narrowed to one of its directions by the retest."""
    return "link" if kind == "link" else "uplink" if kind.startswith("uplink") else "side"


def _or_uplink(suspect: Suspect, found: Tournament) -> str:
    """A node without others on its leaf switch cannot be told from the switch's uplink."""
    if len(suspect.nodes) > 1 or (own := found.switches.get(suspect.nodes[0])) is None:
        return ""
    on = [found.switches.get(node.name) for node in found.nodes]
    return f"; or the uplink of {own}, where it is alone" if on.count(own) < 2 < len(on) else ""


def _or_node(suspect: Suspect, found: Tournament) -> str:
    """The only two nodes of a leaf switch have no others within it."""
    both = set(suspect.nodes)
    leaves = {found.switches.get(node) for node in both}
    if suspect.kind != "link" or None in leaves or len(leaves) > 1:
        return ""
    on = {node.name for node in found.nodes if found.switches.get(node.name) in leaves}
    ways = [r for r in found.retests if set(r.nodes) == both and r.outcome == "confirmed"]
    # where uplinks hold up all pairs across, these do not tell the ends from their link either
    held_up = (found.decision.across or 1.0) < ALL
    if on != both or (len(ways) < 2 and not held_up):
        return ""
    return "; or one of the two nodes, which have no others on their leaf switch"


def _retested(suspect: Suspect, retest: Retest | None, or_else: str) -> Finding:
    partners = f"{suspect.slow} of {suspect.partners} partners"
    first = f"{suspect.ratio:.2f} of its peers"
    if suspect.kind != "link":
        first += f", with {partners}"
    if retest is None:
        return Finding(weight="open", what=suspect.kind, nodes=suspect.nodes, ratio=suspect.ratio,
                       evidence=f"{first}; not tested again")  # fmt: skip
    alone = "alone" + (f" with {', '.join(retest.partners)}" if retest.partners else "")
    told = {"nodes": suspect.nodes, "ratio": retest.ratio}
    match retest.outcome:
        case "confirmed":
            said = f"{first}; {alone} {retest.ratio:.2f}{or_else}"
            return Finding(**told, weight="fault", what=retest.kind, evidence=said)
        case "unsure":
            said = f"{first}; {alone} {retest.ratio:.2f}: {retest.why}"
            return Finding(**told, weight="open", what=retest.kind, evidence=said)
        case "recovered":
            said = f"{first}; {alone} {retest.ratio:.2f}: slow in company only, or it has passed"
            return Finding(**told, weight="remark", what="contention", evidence=said)
        case "cpu":
            said = f"{first}; {retest.why}: the processor, not the link"
            return Finding(**told, weight="open", what="cpu", evidence=said)
        case "unreachable":
            said = f"{first}; then {retest.why}"
            return Finding(**told, weight="open", what=suspect.kind, evidence=said)
