"""From a matrix of rates to suspects: what is slow compared with its peers, and which part of it.

A pair runs at min(what i sends at best, what j receives at best, what the path between carries).
Hence a good side has some partner with whom it is fast, and a bad one has none: sides are scored by
their better partners before any is compared with the others. Scores of pairs would not do: one bad
node of four spoils half of them. Nobody is blamed here: suspects are tested again (retest).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.frozen import Frozen
from train.interconnect.matrix import Matrix, Rates, robust_deviation
from train.interconnect.rounds import Pair
from train.interconnect.suspects import Decision, Kind, Suspect
from train.interconnect.switches import Crossed, Leaves, level, uplinks, without

SENDS, RECEIVES = True, False


class Limits(Frozen):
    """What counts as slow: both far below the peers' scatter and below a relevant share of them."""

    z: float = 3.5  # robust deviations below the median (Iglewicz and Hoaglin 1993)
    low: float = 0.93  # of the median; ClusterKit's threshold (of its maximum)
    floor: float = 0.01  # scatter is taken to be at least this, or three equal nodes had none
    false_links: float = 0.05  # healthy links suspected per tournament, at most, by chance
    small: int = 8  # nodes, below which a side is scored by its best partner, not by a quantile
    quantile: float = 0.75


class _Scale(NamedTuple):
    middle: float
    deviation: float

    def deviations(self, value: float) -> float:
        return (value - self.middle) / self.deviation

    def visible(self, limits: Limits, z: float) -> float:
        """What lies below this share of the middle is slow."""
        return min(limits.low, 1 - z * self.deviation / self.middle)


class _Links(NamedTuple):
    """visible: None where no link was measured."""

    suspects: list[Suspect]
    visible: float | None


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
    across, rising = None, []
    if leaves is not None:
        rising = uplinks(crossed or {}, leaves, limits.z, limits.low, limits.floor)
        matrix, across = level(without(matrix, leaves, rising), leaves)
    sides = side_rates(matrix, limits)
    known = {side: rate for side, rate in sides.items() if np.isfinite(rate)}
    if not known:
        return Decision(
            suspects=tuple(silent), middle=None, visible=None,
            undecided=None if silent else "no pair was measured",
        )  # fmt: skip
    scale = _scale(list(known.values()), matrix, limits)
    reason = None
    slow: list[tuple[int, bool]] = []
    if matrix.count == 2:
        reason = "two nodes have no peers to be compared with: only a baseline can tell"
    elif split := _split(known, matrix, limits):
        reason = split
    else:
        slow = [s for s, rate in known.items() if _is_slow(rate, scale, limits, limits.z)]
    suspects = [*silent, *rising, *_sides_to_suspects(slow, sides, matrix, scale, limits)]
    links = _directions(matrix, limits) if matrix.count == 2 else _links(matrix, sides, limits)
    return Decision(
        suspects=(*suspects, *links.suspects), undecided=reason, middle=scale.middle,
        visible=scale.visible(limits, limits.z), across=across, visible_links=links.visible,
    )  # fmt: skip


def side_rates(matrix: Matrix, limits: Limits) -> dict[tuple[int, bool], float]:
    """What each node sends, and receives, with its better partners; NaN with none."""
    return {
        (node, way): _better(matrix.rates[node] if way else matrix.rates[:, node], limits)
        for node in range(matrix.count)
        for way in (SENDS, RECEIVES)
    }


def _better(rates: Rates, limits: Limits) -> float:
    found = rates[np.isfinite(rates)]
    if not len(found):
        return float("nan")
    if len(rates) < limits.small:
        return float(found.max())
    return float(np.quantile(found, limits.quantile, method="higher"))


def _scale(values: Sequence[float], matrix: Matrix, limits: Limits) -> _Scale:
    """Median and scatter of peers; never less scatter than repetitions of one pair show."""
    middle = float(np.median(values))
    repeats = matrix.spread[np.isfinite(matrix.spread)]
    own = float(np.median(repeats)) if len(repeats) else 0.0
    return _Scale(middle, max(robust_deviation(values), max(limits.floor, own) * middle))


def _is_slow(value: float, scale: _Scale, limits: Limits, z: float) -> bool:
    return scale.deviations(value) < -z and value < limits.low * scale.middle


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
    """Half of the nodes or more, clearly apart from a faster rest: who is normal cannot be seen."""
    scores: dict[int, float] = {}
    for (node, _), rate in sides.items():
        scores[node] = min(rate, scores.get(node, rate))
    order = sorted(scores, key=lambda node: scores[node])
    values = np.array([scores[node] for node in order])
    if len(values) < 3:
        return None
    gap = int(np.argmax(values[1:] / values[:-1])) + 1
    low, high = values[:gap], values[gap:]
    scatter = max(robust_deviation(low) / low[-1], robust_deviation(high) / high[0], limits.floor)
    apart = 1 - low[-1] / high[0]
    if 2 * gap < len(values) or apart < max(1 - limits.low, limits.z * scatter):
        return None
    slower = ", ".join(matrix.nodes[node] for node in sorted(order[:gap]))
    faster = ", ".join(matrix.nodes[node] for node in sorted(order[gap:]))
    return (
        f"{gap} of {len(values)} nodes ({slower}) reach {np.median(low) / np.median(high):.2f} of "
        f"the others ({faster}): with half of them or more apart, peers cannot tell who is right"
    )


def _sides_to_suspects(
    slow: Sequence[tuple[int, bool]],
    sides: dict[tuple[int, bool], float],
    matrix: Matrix,
    scale: _Scale,
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


def _links(matrix: Matrix, sides: dict[tuple[int, bool], float], limits: Limits) -> _Links:
    """Pairs that are slower than their own two ends are with others."""
    ratios = {
        Pair(i, j): float(matrix.rates[i, j]) / min(sides[i, SENDS], sides[j, RECEIVES])
        for i, j in zip(*np.nonzero(np.isfinite(matrix.rates)), strict=True)
    }
    if not ratios:
        return _Links([], None)
    scale = _scale(list(ratios.values()), matrix, limits)
    # so many pairs are looked at that a fixed number of deviations would be met by chance
    z = max(limits.z, -NormalDist().inv_cdf(min(0.5, limits.false_links / len(ratios))))
    suspects = [
        Suspect(
            kind="link", nodes=(matrix.nodes[pair.sender], matrix.nodes[pair.receiver]),
            ratio=ratio, deviations=scale.deviations(ratio), slow=1, partners=1,
            why=f"below {limits.low:g} of what its two ends reach with others, and more than "
            f"{z:.1f} robust deviations under the other links",
        )
        for pair, ratio in ratios.items()
        if _is_slow(ratio, scale, limits, z)
    ]  # fmt: skip
    return _Links(suspects, scale.visible(limits, z))


def _directions(matrix: Matrix, limits: Limits) -> _Links:
    """Of two nodes: one direction against the other, beyond what repetitions scatter."""
    there, back = float(matrix.rates[0, 1]), float(matrix.rates[1, 0])
    if not (np.isfinite(there) and np.isfinite(back)):
        return _Links([], None)
    sender = 0 if there < back else 1
    ratio = min(there, back) / max(there, back)
    scatter = max(limits.floor, float(np.nanmax(matrix.spread)) * 2**0.5)
    deviations = (ratio - 1) / scatter
    visible = min(limits.low, 1 - limits.z * scatter)
    if ratio >= visible:
        return _Links([], visible)
    ends = (matrix.nodes[sender], matrix.nodes[1 - sender])
    why = f"below {limits.low:g} of the other direction between the same two nodes"
    suspect = Suspect(kind="link", nodes=ends, ratio=ratio, deviations=deviations, slow=1,
                      partners=1, why=why)  # fmt: skip
    return _Links([suspect], visible)
