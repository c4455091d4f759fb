"""From a matrix of rates to suspects: what is slow compared with its peers, and which part of it.

A pair runs at min(what i sends at best, what j receives at best, what the path between carries).
Hence a good side has some partner with whom it is fast, and a bad one has none: sides are scored by
their better partners before any is compared with the others. Scores of pairs would not do: one bad
node of four spoils half of them. Nobody is blamed here: suspects are tested again (retest).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np
import numpy.typing as npt

from train.interconnect.diagnosis.leaf_switches import Leaves, level, only_within, without
from train.interconnect.diagnosis.links import slow_direction, slow_links
from train.interconnect.diagnosis.statistics import (
    RECEIVES,
    SENDS,
    Limits,
    Matrix,
    Scale,
    scale_in,
    side_rates,
    split,
)
from train.interconnect.diagnosis.uplinks import Crossed, Uplinks, compare
from train.interconnect.measure.rounds import Pair
from train.interconnect.record import Decision, Kind, Suspect


def decide(
    matrix: Matrix,
    limits: Limits | None = None,
    leaves: Leaves | None = None,
    crossed: Crossed | None = None,
) -> Decision:
    """Compare uplinks of leaf switches where these are known, then sides, then links, with peers.

    crossed: what the uplinks carried when each was loaded by its whole leaf.

    Two nodes have no peers: only their two directions can differ. Where half of the nodes or more
    are slow, or only the scatter is large, nothing is blamed and ``undecided`` says why.
    """
    limits = limits or Limits()
    silent = _silent(matrix)
    across, rising = None, Uplinks()
    within: Mapping[tuple[int, bool], float] = {}
    if leaves is not None:
        within = side_rates(only_within(matrix, leaves), limits)
        rising = compare(crossed or {}, leaves, within, limits)
        matrix, across = level(without(matrix, leaves, rising.suspects), leaves, within)
        if rising.undecided:  # then what is across tells nothing of nodes
            matrix = only_within(matrix, leaves)
    sides = side_rates(matrix, limits)
    known = {side: rate for side, rate in sides.items() if np.isfinite(rate)}
    if not known:
        reason = None if silent else "no pair was measured"
        return Decision(
            suspects=(*silent, *rising.suspects), middle=None, visible=None,
            undecided=_joined(rising.undecided, reason), visible_uplinks=rising.visible,
            crossing=rising.crossing,
        )  # fmt: skip
    scale = scale_in(list(known.values()), matrix, limits)
    slow: list[tuple[int, bool]] = []
    hidden: str | None = None
    alone = matrix.count == 2
    if alone:
        reason = "two nodes have no peers to be compared with: only a baseline can tell"
    elif (reason := _split(known, matrix, limits)) is None:
        slow = [s for s, rate in known.items() if scale.is_slow(rate, limits, limits.z)]
        if leaves is not None:
            slow, hidden = _behind_unscored(slow, within, leaves, rising.scored, scale, limits)
    sides_slow = _sides_to_suspects(slow, sides, matrix, scale, limits)
    links = slow_direction(matrix, limits) if alone else slow_links(matrix, sides, leaves, limits)
    return Decision(
        suspects=(*silent, *rising.suspects, *sides_slow, *links.suspects),
        undecided=_joined(rising.undecided, reason, hidden),
        middle=scale.middle, visible=scale.visible(limits, limits.z), across=across,
        visible_links=links.visible,
        visible_across=_least(links.visible_across, across), visible_uplinks=rising.visible,
        crossing=rising.crossing,
    )  # fmt: skip


def _least(*shares: float | None) -> float | None:
    return min((share for share in shares if share is not None), default=None)


def _joined(*reasons: str | None) -> str | None:
    return "; ".join(reason for reason in reasons if reason) or None


def _behind_unscored(
    slow: Sequence[tuple[int, bool]], within: Mapping[tuple[int, bool], float], leaves: Leaves,
    scored: Set[int], scale: Scale, limits: Limits,
) -> tuple[list[tuple[int, bool]], str | None]:  # fmt: skip
    """Without the nodes of a leaf that are all slow, but not among themselves, where nothing tells
    whether its uplink is; and why."""
    behind: set[tuple[int, bool]] = set()
    told = []
    for leaf in leaves.shared:
        for way, verb in ((SENDS, "send"), (RECEIVES, "receive")):
            sides = {(node, way) for node in leaves.members(leaf)}
            known = [within[side] for side in sides if np.isfinite(within[side])]
            among = bool(known) and max(known) >= limits.low * scale.middle
            if leaf not in scored and sides <= set(slow) and among:
                behind |= sides
                told.append(f"{leaves.names[leaf]} {verb}")
    if not told:
        return list(slow), None
    return [side for side in slow if side not in behind], (
        f"the nodes of {', '.join(told)} less to other leaves than among themselves: their uplink, "
        "which could not be compared with others"
    )


def _silent(matrix: Matrix) -> list[Suspect]:
    """Nodes, sides and links through which nothing came, by the failures alone."""
    if not matrix.failed:
        return []
    broken = np.zeros(matrix.rates.shape, bool)
    for pair in matrix.failed:
        broken[pair] = True
    tried, told = broken | np.isfinite(matrix.rates), np.zeros_like(broken)
    found = []
    for node, name in enumerate(matrix.nodes):
        lost = {
            way: np.flatnonzero(_of(broken, node, way))
            for way in (SENDS, RECEIVES)
            # one partner alone cannot tell this side from the other end
            if _of(broken, node, way).sum() == _of(tried, node, way).sum() > 1
        }
        if not lost:
            continue
        kind: Kind = "node" if len(lost) == 2 else "send" if SENDS in lost else "receive"
        partners = {int(other) for others in lost.values() for other in others}
        way, others = next(iter(lost.items()))
        first = Pair(node, int(others[0])) if way is SENDS else Pair(int(others[0]), node)
        found.append(
            Suspect(
                kind=kind, nodes=(name,), ratio=None, deviations=None, slow=len(partners),
                partners=len(partners),
                why=f"nothing came through with any partner: {matrix.failed[first]}",
            )
        )  # fmt: skip
        for way in lost:
            _of(told, node, way)[:] = True
    return found + [
        Suspect(
            kind="link", nodes=(matrix.nodes[pair.sender], matrix.nodes[pair.receiver]),
            ratio=None, deviations=None, slow=1, partners=1, why=f"nothing came through: {reason}",
        )
        for pair, reason in matrix.failed.items()
        if not told[pair]
    ]  # fmt: skip


def _of(grid: npt.NDArray[np.bool_], node: int, way: bool) -> npt.NDArray[np.bool_]:
    """What a node sends, or receives: a view."""
    return grid[node] if way is SENDS else grid[:, node]


def _pairs_of(matrix: Matrix, node: int, way: bool) -> list[Pair]:
    others = [other for other in range(matrix.count) if other != node]
    return [Pair(node, other) if way else Pair(other, node) for other in others]


def _split(sides: dict[tuple[int, bool], float], matrix: Matrix, limits: Limits) -> str | None:
    """Of nodes, by their slower side."""
    scores: dict[int, float] = {}
    for (node, _), rate in sides.items():
        scores[node] = min(rate, scores.get(node, rate))
    nodes = [matrix.nodes[node] for node in scores]
    found = split(list(scores.values()), limits)
    if found is None:
        return None
    slower, faster = (", ".join(nodes[at] for at in part) for part in (found.slower, found.faster))
    return (
        f"{found} nodes ({slower}) reach {found.ratio:.2f} of the others ({faster}): with half of "
        "them or more apart, peers cannot tell who is right"
    )


def _sides_to_suspects(
    slow: Sequence[tuple[int, bool]],
    sides: dict[tuple[int, bool], float],
    matrix: Matrix,
    scale: Scale,
    limits: Limits,
) -> list[Suspect]:
    found = []
    for node in sorted({node for node, _ in slow}):
        ways = [way for way in (SENDS, RECEIVES) if (node, way) in slow]
        kind: Kind = "node" if len(ways) == 2 else "send" if ways[0] is SENDS else "receive"
        worst = min(sides[node, way] for way in ways)
        pairs = [pair for way in ways for pair in _pairs_of(matrix, node, way)]
        measured = {p for p in pairs if np.isfinite(matrix.rates[p])}
        below = {p for p in measured if matrix.rates[p] < limits.low * scale.middle}
        partners = {other for pair in measured for other in pair} - {node}
        fast = {other for pair in measured - below for other in pair} - {node}
        found.append(
            Suspect(
                kind=kind, nodes=(matrix.nodes[node],), ratio=worst / scale.middle,
                deviations=scale.deviations(worst), slow=len(partners - fast),
                partners=len(partners),
                why=f"below {limits.low:g} of the peers' median and more than {limits.z:g} robust "
                "deviations under it",
            )
        )  # fmt: skip
    return found
