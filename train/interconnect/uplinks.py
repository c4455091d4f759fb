"""Uplinks of leaf switches: which carries less than others when its whole leaf loads it.

Leaves are scored by their best other leaf, as nodes are by their better partners. Nodes that are
all slow cross slowly, too: an uplink lacks only what its nodes reach among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from train.interconnect.peers import RECEIVES, SENDS, Limits, Scale, Split, scale_of, split
from train.interconnect.record import Measurement
from train.interconnect.rounds import Pair
from train.interconnect.suspects import Kind, Suspect
from train.interconnect.switches import Leaves

#: Sending and receiving leaf -> rounds of pairs, bit/s.
Crossed = Mapping[tuple[int, int], Sequence[Mapping[Pair, float]]]
Way = Literal["send", "receive"]


class Uplinks(NamedTuple):
    """undecided: why none can be blamed. visible: an uplink below this share of the others would be
    a suspect; None: not measured."""

    suspects: tuple[Suspect, ...] = ()
    undecided: str | None = None
    visible: float | None = None


class _Crossing(NamedTuple):
    """bit/s. rates: of each round. reach: what its nodes reach within their leaves, infinite where
    that is not known."""

    rates: tuple[float, ...]
    reach: float

    @property
    def rate(self) -> float:
        return float(np.median(self.rates))

    def by_nodes(self, usual: float, limits: Limits) -> bool:
        """As slow as its nodes are, and no slower, and they are slower than others."""
        return self.reach < limits.low * usual and self.rate >= limits.low * self.reach


def crossings(
    leaves: Leaves, names: Sequence[str], rounds: Iterable[Sequence[Measurement]]
) -> Crossed:
    """Of each round what its pairs reached, by the leaves that they join."""
    number = {name: index for index, name in enumerate(names)}
    found: dict[tuple[int, int], list[Mapping[Pair, float]]] = {}
    for measurements in rounds:
        once: dict[tuple[int, int], dict[Pair, float]] = {}
        for m in measurements:
            if m.rates:
                pair = Pair(number[m.sender], number[m.receiver])
                ends = leaves.of[pair.sender], leaves.of[pair.receiver]
                once.setdefault(ends, {})[pair] = float(np.median(m.rates))
        for ends, rates in once.items():
            found.setdefault(ends, []).append(rates)
    return found


def better(rates: Iterable[float]) -> float:
    """The upper quartile: one slow node of a leaf does not make its uplink slow."""
    return float(np.quantile(list(rates), 0.75, method="higher"))


def compare(
    crossed: Crossed, leaves: Leaves, within: Mapping[tuple[int, bool], float], limits: Limits
) -> Uplinks:
    """within: bit/s that a node sends and receives within its leaf, NaN where that is not known."""
    found = {ends: _crossing(rounds, within) for ends, rounds in crossed.items()}
    reached = [crossing.reach for crossing in found.values() if np.isfinite(crossing.reach)]
    usual = float(np.median(reached)) if reached else 0.0
    tested = leaves.tested
    if len(tested) == 2:
        return _one_way(found, tested, leaves, usual, limits)
    best: dict[tuple[int, Way], _Crossing] = {}
    for leaf in tested:
        for way, place in _PLACES.items():
            own = [crossing for ends, crossing in found.items() if ends[place] == leaf]
            if own:
                best[leaf, way] = max(own, key=lambda crossing: crossing.rate)
    scores = {
        side: crossing.rate
        for side, crossing in best.items()
        if not crossing.by_nodes(usual, limits)
    }
    if not scores:
        return Uplinks()
    scale = scale_of(list(scores.values()), limits.floor)
    visible = scale.visible(limits, limits.z)
    if apart := split(list(scores.values()), limits):
        sides = [f"{leaves.names[leaf]} {way}s" for leaf, way in scores]
        return Uplinks((), _halved(apart, sides), visible)
    suspects = [
        suspect
        for leaf in tested
        if (suspect := _slow_leaf(leaf, leaves, scores, scale, limits)) is not None
    ]
    return Uplinks(tuple(suspects), None, visible)


_PLACES: Mapping[Way, int] = {"send": 0, "receive": 1}


def _crossing(
    rounds: Sequence[Mapping[Pair, float]], within: Mapping[tuple[int, bool], float]
) -> _Crossing:
    def reach(pair: Pair) -> float:
        sides = within.get((pair.sender, SENDS)), within.get((pair.receiver, RECEIVES))
        return min((s for s in sides if s is not None and np.isfinite(s)), default=np.inf)

    return _Crossing(
        rates=tuple(better(pairs.values()) for pairs in rounds),
        reach=float(np.median([better(map(reach, pairs)) for pairs in rounds])),
    )


def _slow_leaf(
    leaf: int, leaves: Leaves, scores: Mapping[tuple[int, Way], float], scale: Scale, limits: Limits
) -> Suspect | None:
    slow = [
        way
        for way in _PLACES
        if (leaf, way) in scores and scale.is_slow(scores[leaf, way], limits, limits.z)
    ]
    if not slow:
        return None
    worst = min(scores[leaf, way] for way in slow)
    others = len(leaves.tested) - 1
    return _suspect(
        slow, (leaves.names[leaf],), worst / scale.middle, scale.deviations(worst), others
    )


def _halved(apart: Split, sides: Sequence[str]) -> str:
    slower, faster = (", ".join(sides[at] for at in part) for part in (apart.slower, apart.faster))
    return (
        f"{apart} directions of uplinks ({slower}) reach {apart.ratio:.2f} of the others "
        f"({faster}): with half of them or more apart, peers cannot tell who is right"
    )


def _one_way(
    found: Mapping[tuple[int, int], _Crossing], tested: Sequence[int], leaves: Leaves,
    usual: float, limits: Limits,
) -> Uplinks:  # fmt: skip
    """Of two leaves: one direction against the other, where every round of it is slower."""
    there, back = (tested[0], tested[1]), (tested[1], tested[0])
    if not {there, back} <= set(found):
        return Uplinks()
    slow, fast = sorted((there, back), key=lambda ends: found[ends].rate)
    low, high = found[slow], found[fast]
    visible = limits.low * min(high.rates) / high.rate * low.rate / max(low.rates)
    if max(low.rates) >= limits.low * min(high.rates) or low.by_nodes(usual, limits):
        return Uplinks((), None, visible)
    names = (leaves.names[slow[0]], leaves.names[slow[1]])
    ratio = low.rate / high.rate
    return Uplinks(
        (_suspect(["send"], names, ratio, (ratio - 1) / limits.floor, 1),), None, visible
    )


def _suspect(
    ways: Sequence[Way], names: tuple[str, ...], ratio: float, deviations: float, partners: int
) -> Suspect:
    kind: Kind = (
        "uplink" if len(ways) == 2 else "uplink-send" if ways[0] == "send" else "uplink-receive"
    )
    return Suspect(
        kind=kind, nodes=names, ratio=ratio, deviations=deviations, slow=partners,
        partners=partners,
        why="its nodes are slow towards all other leaves, all at once",
    )  # fmt: skip
