"""Uplinks of leaf switches: which carries less than others when its whole leaf loads it.

Leaves are scored by their best other leaf, as nodes are by their better partners. Nodes that are
all slow cross slowly, too: an uplink lacks only what its nodes reach among themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from train.interconnect.diagnosis.leaf_switches import Leaves
from train.interconnect.diagnosis.statistics import (
    RECEIVES,
    SENDS,
    Limits,
    Scale,
    Split,
    scale_of,
    split,
)
from train.interconnect.measure.rounds import Pair
from train.interconnect.record import Kind, Measurement, Suspect

#: Sending and receiving leaf -> rounds of pairs, bit/s.
Crossed = Mapping[tuple[int, int], Sequence[Mapping[Pair, float]]]
Way = Literal["send", "receive"]
End = TypeVar("End", int, str)


class Uplinks(NamedTuple):
    """undecided: why none can be blamed. visible: an uplink below this share of the others would be
    a suspect; None: not measured. crossing: what they carry of what their nodes reach within their
    leaves. scored: leaves whose uplinks were compared with others."""

    suspects: tuple[Suspect, ...] = ()
    undecided: str | None = None
    visible: float | None = None
    crossing: float | None = None
    scored: frozenset[int] = frozenset()


class _Crossing(NamedTuple):
    """bit/s. rates: of each round. reach: what its nodes reach within their leaves, infinite where
    that is not known."""

    rates: tuple[float, ...]
    reach: float

    @property
    def rate(self) -> float:
        return float(np.median(self.rates))

    @property
    def share(self) -> float:
        """Of the reach, in the best round: routes that collide are drawn anew in each."""
        return max(self.rates) / self.reach


def crossings(
    leaves: Leaves, names: Sequence[str], rounds: Iterable[Sequence[Measurement]]
) -> Crossed:
    """Of each round what its pairs reached, by the leaves that they join; without those that
    failed."""
    number = {name: index for index, name in enumerate(names)}
    found: dict[tuple[int, int], list[Mapping[Pair, float]]] = {}
    for measurements in rounds:
        once: dict[tuple[int, int], dict[Pair, float]] = {}
        for m in measurements:
            pair = Pair(number[m.sender], number[m.receiver])
            together = once.setdefault((leaves.of[pair.sender], leaves.of[pair.receiver]), {})
            if m.rates:
                together[pair] = float(np.median(m.rates))
        for ends, rates in once.items():
            found.setdefault(ends, []).append(rates)
    return found


def better(rates: Iterable[float]) -> float:
    """The upper quartile: one slow node of a leaf does not make its uplink slow."""
    return float(np.quantile(list(rates), 0.75, method="higher"))


def reach_of(
    rounds: Sequence[Iterable[tuple[End, End]]],
    sends: Mapping[End, float], receives: Mapping[End, float],
) -> float:  # fmt: skip
    """What the pairs of some rounds would reach by what their ends send and receive elsewhere;
    infinite where that is not known."""

    def ends(pair: tuple[End, End]) -> float:
        return min(sends.get(pair[0], np.inf), receives.get(pair[1], np.inf))

    return float(np.median([better(map(ends, pairs)) for pairs in rounds]))


def is_by_nodes(rate: float, reach: float, usual: float, low: float) -> bool:
    """Whether a crossing is as slow as its nodes are, and no slower, and they are slower than is
    ``usual``."""
    return reach < low * usual and rate >= low * reach


def compare(
    crossed: Crossed, leaves: Leaves, within: Mapping[tuple[int, bool], float], limits: Limits
) -> Uplinks:
    """within: bit/s that a node sends and receives within its leaf, NaN where that is not known."""
    sends, receives = (
        {node: rate for (node, own), rate in within.items() if own is way and np.isfinite(rate)}
        for way in (SENDS, RECEIVES)
    )
    found = {
        ends: _Crossing(
            tuple(better(pairs.values()) for pairs in alive), reach_of(alive, sends, receives)
        )
        for ends, rounds in crossed.items()
        if (alive := [pairs for pairs in rounds if pairs])
    }
    if silent := _silent(crossed, set(found), leaves):
        return Uplinks(undecided=silent)
    known = [crossing for crossing in found.values() if np.isfinite(crossing.reach)]
    usual = float(np.median([crossing.reach for crossing in known])) if known else 0.0
    by_nodes = {ends for ends, crossing in found.items()
                if is_by_nodes(crossing.rate, crossing.reach, usual, limits.low)}  # fmt: skip
    shares = [crossing.share for crossing in known]
    if len(leaves.tested) == 2:
        share = min(shares, default=None)
        own = {ends: found[ends] for ends in found.keys() - by_nodes}
        return _one_way(own, leaves, limits)._replace(crossing=share)
    share = float(np.median(shares)) if shares else None
    scores = {
        (leaf, way): rate
        for leaf in leaves.tested
        for way, place in _PLACES.items()
        if (rate := _score({e: c.rate for e, c in found.items() if e[place] == leaf}, by_nodes))
    }
    if not scores:
        return Uplinks(crossing=share)
    scale = scale_of(list(scores.values()), limits.floor)
    scored = frozenset(leaf for leaf, _ in scores)
    told = Uplinks((), None, scale.visible(limits, limits.z), share, scored)
    if apart := split(list(scores.values()), limits):
        sides = [f"{leaves.names[leaf]} {way}s" for leaf, way in scores]
        return told._replace(undecided=_halved(apart, sides))
    suspects = [
        suspect
        for leaf in leaves.tested
        if (suspect := _slow_leaf(leaf, leaves, scores, scale, limits)) is not None
    ]
    return told._replace(suspects=tuple(suspects))


def _score(rates: Mapping[tuple[int, int], float], by_nodes: Set[tuple[int, int]]) -> float | None:
    """Of the crossings of a leaf, one way, the best that nodes do not hold up; None: such a one was
    the fastest, and nothing tells what the uplink would carry."""
    free = max((rate for ends, rate in rates.items() if ends not in by_nodes), default=0.0)
    held = max((rate for ends, rate in rates.items() if ends in by_nodes), default=0.0)
    return free if free > held else None


_PLACES: Mapping[Way, int] = {"send": 0, "receive": 1}


def _silent(crossed: Crossed, alive: Set[tuple[int, int]], leaves: Leaves) -> str | None:
    """Directions in which nothing came through from or to any leaf that was tried."""
    dead = [
        f"{leaves.names[leaf]} {way}s"
        for leaf in leaves.tested
        for way, place in _PLACES.items()
        if (tried := {ends for ends in crossed if ends[place] == leaf}) and not tried & alive
    ]
    if not dead:
        return None
    return f"nothing came through uplinks that a whole leaf loaded at once ({', '.join(dead)})"


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
    worst, others = min(scores[leaf, way] for way in slow), len(leaves.tested) - 1
    kind: Kind = (
        "uplink" if len(slow) == 2 else "uplink-send" if slow[0] == "send" else "uplink-receive"
    )
    return Suspect(
        kind=kind, nodes=(leaves.names[leaf],), ratio=worst / scale.middle,
        deviations=scale.deviations(worst), slow=others, partners=others,
        why=f"all its nodes at once {' and '.join(slow)} less than those of other leaves",
    )  # fmt: skip


def _halved(apart: Split, sides: Sequence[str]) -> str:
    slower, faster = (", ".join(sides[at] for at in part) for part in (apart.slower, apart.faster))
    return (
        f"{apart} directions of uplinks ({slower}) reach {apart.ratio:.2f} of the others "
        f"({faster}): with half of them or more apart, peers cannot tell who is right"
    )


def _one_way(found: Mapping[tuple[int, int], _Crossing], leaves: Leaves, limits: Limits) -> Uplinks:
    """Of two leaves: one direction against the other, where every round of it is slower."""
    if len(found) < 2:
        return Uplinks()
    slow, fast = sorted(found, key=lambda ends: found[ends].rate)
    scored = frozenset(leaves.tested)
    if max(found[slow].rates) >= limits.low * min(found[fast].rates):
        return Uplinks(scored=scored)
    suspect = Suspect(
        kind="uplink-send", nodes=(leaves.names[slow[0]], leaves.names[slow[1]]),
        ratio=found[slow].rate / found[fast].rate, deviations=None, slow=1, partners=1,
        why="slower in every round than the other way between the same two leaves",
    )  # fmt: skip
    return Uplinks((suspect,), scored=scored)
