"""Nodes on leaf switches: pairs within a leaf and across leaves are two populations.

Across leaves a fabric may carry less by design (oversubscription), so what is across is brought to
the level of what is within before nodes are compared.

Uplinks are measured by themselves, all of a leaf's nodes at once towards another leaf: a link that
is shared shows what it lacks in that company only, and to some pairs at a time it looks healthy. A
leaf that is slow towards all others has a slow uplink: a fault of none of its nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from train.interconnect.diagnosis.statistics import RECEIVES, SENDS, Matrix, Rates
from train.interconnect.measure.rounds import Pair, Round, at_most, both_ways, some_partners
from train.interconnect.record import PARTNERS, Suspect

#: Leaves of fewer nodes than this share of the largest cannot load an uplink as the others do.
_COMPARABLE = 0.5
#: So few leaves meet so often.
FEW_LEAVES, REPEATED = 4, 3


class Leaves(NamedTuple):
    """names: of switches. of: number of the switch of each node; -1: none is known."""

    names: tuple[str, ...]
    of: tuple[int, ...]

    def members(self, leaf: int) -> list[int]:
        return [node for node, own in enumerate(self.of) if own == leaf]

    def apart(self, one: int, other: int) -> bool:
        """Whether two nodes are on two leaves, as far as is known."""
        return -1 not in (self.of[one], self.of[other]) and self.of[one] != self.of[other]

    @property
    def shared(self) -> list[int]:
        """Leaves of two nodes or more."""
        return [leaf for leaf in range(len(self.names)) if self.of.count(leaf) > 1]

    @property
    def tested(self) -> list[int]:
        """Leaves whose uplinks can be compared."""
        largest = max(map(self.of.count, self.shared), default=0)
        return [leaf for leaf in self.shared if self.of.count(leaf) >= _COMPARABLE * largest]

    @property
    def width(self) -> int:
        """So many pairs load an uplink: as many for every leaf, or none could be compared."""
        return min(map(self.of.count, self.tested), default=0)


def leaves_of(nodes: Sequence[str], known: Mapping[str, str]) -> Leaves | None:
    """None where fewer than two switches with two nodes each are known: nothing to tell apart."""
    names = tuple(sorted({known[node] for node in nodes if node in known}))
    own = tuple(names.index(known[node]) if node in known else -1 for node in nodes)
    found = Leaves(names, own)
    return found if len(found.shared) > 1 else None


def level(
    matrix: Matrix, leaves: Leaves, within: Mapping[tuple[int, bool], float]
) -> tuple[Matrix, float | None]:
    """The matrix with what is across leaves raised to the level of what is within; and that level
    before, as a share. None: one of the two was not measured.

    within: bit/s that a node sends and receives within its leaf, NaN where that is not known.
    """
    across = _across(leaves)
    measured = np.isfinite(matrix.rates)
    inside, outside = measured & ~across, measured & across
    if not inside.any() or not outside.any():
        return matrix, None
    usual = float(np.median(matrix.rates[inside]))
    reach = _reach(leaves, within, usual)
    share = float(np.median(matrix.rates[outside] / reach[outside]))
    if share >= 1:
        return matrix, share
    # of two nodes the only partner may be the slow one; of one that is alone nothing tells what is
    # the design's and what its own, so it is left to the second look
    count = np.array([leaves.of.count(leaf) for leaf in leaves.of])
    fewest = np.minimum(count[:, None], count[None, :])
    most = np.select([fewest > 2, fewest == 2], [reach, usual], 0.0)
    # a pair that had an uplink to itself, or slow ends, has nothing to be made up for
    raised = np.maximum(matrix.rates, np.minimum(matrix.rates / share, most))
    return replace(matrix, rates=np.where(across, raised, matrix.rates)), share


def _reach(leaves: Leaves, within: Mapping[tuple[int, bool], float], usual: float) -> Rates:
    """[n, n] bit/s: what the ends of each pair reach within their leaves."""
    sends, receives = (
        np.array([within.get((node, way), np.nan) for node in range(len(leaves.of))])
        for way in (SENDS, RECEIVES)
    )
    sends, receives = (np.where(np.isfinite(side), side, usual) for side in (sends, receives))
    return np.minimum(sends[:, None], receives[None, :])


def only_within(matrix: Matrix, leaves: Leaves) -> Matrix:
    """Without the pairs across leaves."""
    return replace(matrix, rates=np.where(_across(leaves), np.nan, matrix.rates))


def without(matrix: Matrix, leaves: Leaves, suspects: Sequence[Suspect]) -> Matrix:
    """Without the pairs through slow uplinks, which say nothing of their nodes."""
    rates = matrix.rates.copy()
    number = np.array(leaves.of)
    across = _across(leaves)
    for suspect in suspects:
        for row, column in _blocks(suspect, leaves):
            mine = np.ones_like(across)
            if row is not None:
                mine &= (number == row)[:, None]
            if column is not None:
                mine &= (number == column)[None, :]
            rates[across & mine] = np.nan
    return replace(matrix, rates=rates)


def uplink_rounds(
    leaves: Leaves, seed: int, *, apart: bool, most: int | None = None
) -> list[Round]:
    """Every ordered pair of leaves, or some for many leaves, those that share no leaf at the same
    time, unless ``apart``. Few leaves meet several times, with other pairs of nodes: they have too
    few peers to tell how much a crossing scatters. None at all where ``most`` rounds are too few.
    """
    tested = leaves.tested
    count = len(tested)

    def schedule(turns: int, partners: int) -> list[Round]:
        rounds = some_partners(count, partners, seed)
        return [
            tuple(pair for a, b in facing for pair in _facing(leaves, tested[a], tested[b], turn))
            for turn in range(turns)
            for facing in (at_most(rounds, 1) if apart else rounds)
        ]

    turns = REPEATED if count <= FEW_LEAVES else 1
    fewer = [(t, PARTNERS) for t in range(turns, 0, -1)]
    fewer += [(1, partners) for partners in range(PARTNERS - 1, 0, -1)]
    schedules = (schedule(*each) for each in fewer)
    return next((found for found in schedules if most is None or len(found) <= most), [])


def fit_partners(
    suspect: Suspect, names: Sequence[str], healthy: Sequence[int], leaves: Leaves | None,
    suspects: Sequence[Suspect],
) -> list[int]:  # fmt: skip
    """Of the ``healthy``, those whom no slow uplink parts from a node or link."""
    if leaves is None:
        return list(healthy)
    behind = _accused(leaves, suspects)
    own = {leaves.of[names.index(name)] for name in suspect.nodes}
    near = [node for node in healthy if leaves.of[node] in own]
    far = [node for node in healthy if leaves.of[node] not in behind]
    return near if own & behind else far


class Again(NamedTuple):
    """Rounds of each suspect direction of an uplink, and through another uplink to compare with;
    alone, each several times with other pairs of nodes. within: of its nodes among themselves."""

    tried: list[list[Round]]
    others: list[Round]
    within: list[Round]


def retest_rounds(
    suspect: Suspect, nodes: Sequence[str], leaves: Leaves, suspects: Sequence[Suspect]
) -> Again:
    def rounds(a: int, b: int) -> list[Round]:
        return [_facing(leaves, a, b, turn) for turn in range(REPEATED)]

    accused = _accused(leaves, suspects)
    slow = {name for s in suspects if len(s.nodes) == 1 for name in s.nodes}
    # a leaf of slow nodes is no measure for others, but better than none
    healthy = [leaf for leaf in leaves.tested if leaf not in accused]
    healthy.sort(key=lambda leaf: any(nodes[node] in slow for node in leaves.members(leaf)))
    own = [leaves.names.index(name) for name in suspect.nodes]
    within = [pairs for leaf in own for pairs in _neighbours(leaves.members(leaf))]
    mine = own[0]
    if len(own) == 2:
        return Again([rounds(mine, own[1])], rounds(own[1], mine), within)
    if not healthy:
        return Again([], [], within)
    ways = {"uplink-send": ("send",), "uplink-receive": ("receive",)}
    tried = [
        rounds(mine, healthy[0]) if way == "send" else rounds(healthy[0], mine)
        for way in ways.get(suspect.kind, ("send", "receive"))
    ]
    if len(healthy) < 2:
        return Again(tried, [], within)
    return Again(tried, rounds(healthy[1], healthy[0]), within)


def _neighbours(members: Sequence[int]) -> list[Round]:
    """Each node sends and receives once, at least: by twos, both ways; an odd one meets the first
    one afterwards."""
    twos = [Pair(*members[at : at + 2]) for at in range(0, len(members) - 1, 2)]
    rounds = [tuple(twos)]
    if len(members) % 2:
        rounds.append((Pair(members[-1], members[0]),))
    return both_ways(rounds)


def _accused(leaves: Leaves, suspects: Sequence[Suspect]) -> set[int]:
    """Leaves whose uplinks are suspect."""
    names = {name for s in suspects if s.kind.startswith("uplink") for name in s.nodes}
    return {leaf for leaf, name in enumerate(leaves.names) if name in names}


def _facing(leaves: Leaves, a: int, b: int, turn: int = 0) -> Round:
    """turn: each sender meets the receiver so many places on."""
    width, receivers = leaves.width, leaves.members(b)
    return tuple(
        Pair(sender, receivers[(place + turn) % len(receivers)])
        for place, sender in enumerate(leaves.members(a)[:width])
    )


def _blocks(suspect: Suspect, leaves: Leaves) -> list[tuple[int | None, int | None]]:
    """From leaf to leaf, None: any. Of two leaves it is the first that sends less, or the second
    that receives less."""
    first = leaves.names.index(suspect.nodes[0])
    if len(suspect.nodes) == 2:
        return [(first, None), (None, leaves.names.index(suspect.nodes[1]))]
    found: list[tuple[int | None, int | None]] = []
    if suspect.kind != "uplink-receive":
        found.append((first, None))
    if suspect.kind != "uplink-send":
        found.append((None, first))
    return found


def _across(leaves: Leaves) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    number = np.array(leaves.of)
    known = number >= 0
    across: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = (
        (number[:, None] != number[None, :]) & known[:, None] & known[None, :]
    )
    return across
