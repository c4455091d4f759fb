"""Nodes on leaf switches: pairs within a leaf and across leaves are two populations.

Across leaves a fabric may carry less by design (oversubscription), so what is across is brought to
the level of what is within before nodes are compared.

Uplinks are measured by themselves, all of a leaf's nodes at once towards another leaf: a link that
is shared shows what it lacks in that company only, and to some pairs at a time it looks healthy. A
leaf that is slow towards all others has a slow uplink: a fault of none of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from train.interconnect.matrix import Matrix, robust_deviation
from train.interconnect.record import Measurement
from train.interconnect.rounds import PARTNERS, Pair, Round, at_most, some_partners
from train.interconnect.suspects import Kind, Suspect

#: Leaves of fewer nodes than this share of the largest cannot load an uplink as the others do.
_COMPARABLE = 0.5
#: So few leaves meet so often.
FEW_LEAVES, REPEATED = 4, 3
#: Sending and receiving leaf -> bit/s, one for each round.
Crossed = Mapping[tuple[int, int], Sequence[float]]


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


def level(matrix: Matrix, leaves: Leaves) -> tuple[Matrix, float | None]:
    """The matrix with what is across leaves raised to the level of what is within; and that level
    before, as a share. None: one of the two was not measured."""
    across = _across(leaves)
    measured = np.isfinite(matrix.rates)
    inside, outside = matrix.rates[measured & ~across], matrix.rates[measured & across]
    if not len(inside) or not len(outside):
        return matrix, None
    share = float(np.median(outside) / np.median(inside))
    if share >= 1:
        return matrix, share
    return replace(matrix, rates=np.where(across, matrix.rates / share, matrix.rates)), share


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
    """Every ordered pair of leaves, or some for many leaves, in up to about ``most`` rounds; those
    that share no leaf at the same time, unless ``apart``. Few leaves meet several times, with other
    pairs of nodes: they have too few peers to tell how much a crossing scatters."""
    tested = leaves.tested
    count = len(tested)

    def schedule(partners: int) -> list[Round]:
        rounds = some_partners(count, partners, seed)
        return at_most(rounds, 1) if apart else rounds

    partners = PARTNERS
    while most is not None and partners > 1 and len(schedule(partners)) > most:
        partners -= 1
    return [
        tuple(pair for a, b in facing for pair in _facing(leaves, tested[a], tested[b], turn))
        for turn in range(REPEATED if count <= FEW_LEAVES else 1)
        for facing in schedule(partners)
    ]


def crossings(
    leaves: Leaves, names: Sequence[str], rounds: Iterable[Sequence[Measurement]]
) -> Crossed:
    """From leaf to leaf, bit/s, for each round: what the better quarter of its pairs reached."""
    number = {name: index for index, name in enumerate(names)}
    found: dict[tuple[int, int], list[float]] = {}
    for measurements in rounds:
        once: dict[tuple[int, int], list[float]] = {}
        for m in measurements:
            if m.rates:
                ends = leaves.of[number[m.sender]], leaves.of[number[m.receiver]]
                once.setdefault(ends, []).append(float(np.median(m.rates)))
        for ends, rates in once.items():
            found.setdefault(ends, []).append(better(rates))
    return found


def better(rates: Sequence[float]) -> float:
    """The upper quartile: one slow node of a leaf does not make its uplink slow."""
    return float(np.quantile(rates, 0.75, method="higher"))


def uplinks(rounds: Crossed, leaves: Leaves, z: float, low: float, floor: float) -> list[Suspect]:
    """A leaf is scored by its best other leaf. rounds: as ``crossings`` tells."""
    tested = leaves.tested
    crossed = {ends: float(np.median(rates)) for ends, rates in rounds.items()}
    if len(tested) == 2:
        return _one_way(rounds, tested, leaves, low, floor)
    scores = {
        (leaf, way): _best([rate for pair, rate in crossed.items() if pair[place] == leaf])
        for leaf in tested
        for way, place in (("send", 0), ("receive", 1))
    }
    known = [rate for rate in scores.values() if np.isfinite(rate)]
    if not known:
        return []
    middle = float(np.median(known))
    scatter = max(robust_deviation(known), floor * middle)
    found = []
    for leaf in tested:
        slow = [
            way for way in ("send", "receive")
            if scores[leaf, way] < low * middle and (scores[leaf, way] - middle) / scatter < -z
        ]  # fmt: skip
        if slow:
            worst = min(scores[leaf, way] for way in slow)
            found.append(_suspect(slow, (leaves.names[leaf],), worst / middle,
                                  (worst - middle) / scatter, len(tested) - 1))  # fmt: skip
    return found


def _one_way(
    crossed: Crossed, tested: Sequence[int], leaves: Leaves, low: float, floor: float
) -> list[Suspect]:
    """Of two leaves: one direction against the other, where every round of it is slower."""
    there, back = (tested[0], tested[1]), (tested[1], tested[0])
    if not {there, back} <= set(crossed):
        return []
    slow, fast = sorted((there, back), key=lambda ends: float(np.median(crossed[ends])))
    ratio = float(np.median(crossed[slow]) / np.median(crossed[fast]))
    if max(crossed[slow]) >= low * min(crossed[fast]):
        return []
    names = (leaves.names[slow[0]], leaves.names[slow[1]])
    return [_suspect(["send"], names, ratio, (ratio - 1) / floor, 1)]


def _suspect(
    ways: Sequence[str], names: tuple[str, ...], ratio: float, deviations: float, partners: int
) -> Suspect:
    kind: Kind = (
        "uplink" if len(ways) == 2 else "uplink-send" if ways[0] == "send" else "uplink-receive"
    )
    return Suspect(
        kind=kind, nodes=names, ratio=ratio, deviations=deviations, slow=partners,
        partners=partners,
        why="its nodes are slow towards all other leaves, all at once",
    )  # fmt: skip


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


def retest_rounds(
    suspect: Suspect, leaves: Leaves, suspects: Sequence[Suspect]
) -> tuple[list[list[Round]], list[Round]]:
    """Rounds of each suspect direction of an uplink, and through others to compare with; alone,
    each several times with other pairs of nodes."""

    def rounds(a: int, b: int) -> list[Round]:
        return [_facing(leaves, a, b, turn) for turn in range(REPEATED)]

    accused = _accused(leaves, suspects)
    healthy = [leaf for leaf in leaves.tested if leaf not in accused]
    mine = leaves.names.index(suspect.nodes[0])
    if len(suspect.nodes) == 2:
        other = leaves.names.index(suspect.nodes[1])
        return [rounds(mine, other)], rounds(other, mine)
    if not healthy:
        return [], []
    ways = {"uplink-send": ("send",), "uplink-receive": ("receive",)}
    tried = [
        rounds(mine, healthy[0]) if way == "send" else rounds(healthy[0], mine)
        for way in ways.get(suspect.kind, ("send", "receive"))
    ]
    if len(healthy) < 2:
        return tried, []
    return tried, rounds(healthy[1], healthy[0])


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
    first = leaves.names.index(suspect.nodes[0])
    if len(suspect.nodes) == 2:
        return [(first, leaves.names.index(suspect.nodes[1]))]
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


def _best(rates: Sequence[float]) -> float:
    found = [rate for rate in rates if np.isfinite(rate)]
    return max(found) if found else float("nan")
