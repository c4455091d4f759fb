"""A suspect once more: alone, with fresh partners, beside healthy pairs that are alone, too."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence, Set
from typing import Literal, NamedTuple

import numpy as np

from train.interconnect.diagnosis.leaf_switches import Again
from train.interconnect.diagnosis.statistics import Limits, deviation_of_median
from train.interconnect.diagnosis.uplinks import better, is_by_nodes, reach_of
from train.interconnect.measure.rounds import Pair, Round
from train.interconnect.record import Kind, Measurement, Outcome, Retest, Suspect

_PARTNERS = 2
_RETEST = "retest"

Apart = Callable[[int, int], bool]
Run = Callable[[Round, str], Awaitable[list[Measurement]]]


class Chosen(NamedTuple):
    """reference: pairs that should be as fast as the suspect would be if nothing was wrong."""

    partners: Sequence[int]
    tried: Sequence[Pair]
    reference: Sequence[Pair]


async def look_again(
    run: Run, names: Sequence[str], suspect: Suspect, healthy: Sequence[int], turn: int,
    apart: Apart = lambda one, other: False, doubtful: Set[Pair] = frozenset(),
) -> Retest:  # fmt: skip
    """healthy: nodes that are no suspects; turn: another number takes other partners of them.
    apart: whether two nodes are on two leaves, between which a pair may be slower by design: pairs
    are compared with pairs of their kind only. doubtful: pairs that are suspects themselves.

    Nobody is blamed for what it does in company only (contention), nor for want of processor time,
    nor for less than what its own samples scatter by.
    """
    own = [names.index(name) for name in suspect.nodes]
    others = [n for n in healthy if n not in own]
    start = turn % len(others) if others else 0
    others = [*others[start:], *others[:start]]
    chosen = _beside_link if suspect.kind == "link" else _beside_node
    partners, tried, reference = chosen(suspect, own, others, apart, doubtful)
    found: dict[Pair, Measurement] = {}
    for pair in (*tried, *reference):
        (found[pair],) = await run((pair,), _RETEST)
        if pair in tried and not found[pair].rates:
            break  # each such pair takes its whole time limit
    told = {"nodes": suspect.nodes, "partners": tuple(names[n] for n in partners)}
    failed = [m for pair, m in found.items() if pair in tried and not m.rates]
    if failed:
        return Retest(**told, kind=suspect.kind, ratio=None, waited=None, outcome="unreachable",
                      why=failed[0].error or "no sample")  # fmt: skip
    normal = [found[pair] for pair in reference if found[pair].rates]
    lost = max((_lost(m, names[n]) for p, m in found.items() if p in tried for n in own
                if n in p), default=0.0)  # fmt: skip
    waited = _more_than(lost, [m for pair, m in found.items() if pair in reference])
    if not normal:
        return Retest(**told, kind=suspect.kind, ratio=None, waited=waited, outcome="unreachable",
                      why="no healthy pair to compare with")  # fmt: skip
    usual = [_rate(m) for m in normal]
    # a link is as fast as the slower of its two ends is with others
    ends = suspect.kind == "link" and bool(partners)
    scale = min(usual) if ends else float(np.median(usual))
    ways = {
        way: max(_rate(found[pair]) for pair in pairs) / scale
        for way, pairs in _by_way(tried, own).items()
    }
    slow = [way for way, ratio in ways.items() if ratio < Limits().low]
    kind, ratio = _narrowed(suspect.kind, slow), min(ways.values())
    scatter = math.hypot(_scatter([found[pair] for pair in tried]), _scatter(normal))
    outcome, why = _outcome(slow, ratio, waited, scatter)
    mates = [n for n in range(len(names)) if n not in own and not apart(own[0], n)]
    if outcome == "recovered" and mates and all(apart(*pair) for pair in tried):
        among = await _among(run, suspect.kind, own[0], mates[0], others, apart)
        if among is None or among < Limits().low:
            outcome, why = "unsure", (
                "as fast as others across leaf switches only, which may hold all up; those of its "
                "own leaf are suspects, too"
            )  # fmt: skip
    return Retest(**told, kind=kind, ratio=ratio, waited=waited, outcome=outcome, why=why)


async def _among(
    run: Run, kind: Kind, node: int, mate: int, others: Sequence[int], apart: Apart
) -> float | None:
    """A node with a suspect mate of its leaf, beside two others of a leaf; its slower direction.
    None: there are no such two, or no number."""
    ways = {"send": [Pair(node, mate)], "receive": [Pair(mate, node)]}
    tried = ways.get(kind, [pair for pairs in ways.values() for pair in pairs])
    beside = next((Pair(a, b) for a in others for b in others if a < b and not apart(a, b)), None)
    if beside is None:
        return None
    found = [(await run((pair,), _RETEST))[0] for pair in (beside, *tried)]
    if not all(m.rates for m in found):
        return None
    normal, *own = map(_rate, found)
    return min(own) / normal


async def look_across(run: Run, suspect: Suspect, rounds: Again) -> Retest:
    """An uplink once more: all of its leaf at once and nothing else, beside another uplink so. It
    is not blamed for what its nodes do not reach within their leaf either."""
    told = {"nodes": suspect.nodes, "kind": suspect.kind, "partners": ()}

    async def seen(rounds: Sequence[Round]) -> list[list[Measurement]]:
        found = [[m for m in await run(pairs, _RETEST) if m.rates] for pairs in rounds]
        return [good for good in found if good]

    healthy, again = await seen(rounds.others), [await seen(way) for way in rounds.tried]
    lost = max((_lost(m, n) for way in again for good in way for m in good
                for n in (m.sender, m.receiver)), default=0.0)  # fmt: skip
    waited = _more_than(lost, [m for good in healthy for m in good])
    if not healthy or not again or not all(again):
        return Retest(**told, ratio=None, waited=None, outcome="unreachable",
                      why="no healthy uplink to compare with")  # fmt: skip
    normal, rates = _crossed(healthy), [_crossed(way) for way in again]
    ratio = min(float(np.median(way)) for way in rates) / float(np.median(normal))
    # routes are drawn anew with each connection: one low round may be a collision of them
    slow = [at for at, way in enumerate(rates) if max(way) < Limits().low * min(normal)]
    outcome, why = _outcome(["uplink"] if slow else [], ratio, waited)
    if outcome == "confirmed":
        among = [m for good in await seen(rounds.within) for m in good]
        if all(_is_by_nodes(again[at], among, float(np.median(normal))) for at in slow):
            outcome = "unsure"
            why = "no less than its nodes reach among themselves: nodes, or their whole switch"
    return Retest(**told, ratio=ratio, waited=waited, outcome=outcome, why=why)


def _crossed(rounds: Sequence[Sequence[Measurement]]) -> list[float]:
    return [better(map(_rate, good)) for good in rounds]


def _best(
    measurements: Sequence[Measurement], end: Literal["sender", "receiver"]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for m in measurements:
        name = getattr(m, end)
        found[name] = max(_rate(m), found.get(name, 0.0))
    return found


def _is_by_nodes(
    rounds: Sequence[Sequence[Measurement]], among: Sequence[Measurement], usual: float
) -> bool:
    """Whether an uplink carried what its nodes reach ``among`` themselves, at best."""
    sends, receives = _best(among, "sender"), _best(among, "receiver")
    pairs = [[(m.sender, m.receiver) for m in good] for good in rounds]
    rate = float(np.median(_crossed(rounds)))
    return is_by_nodes(rate, reach_of(pairs, sends, receives), usual, Limits().low)


def _outcome(
    slow: Sequence[str], ratio: float, lost: float, scatter: float = 0.0
) -> tuple[Outcome, str]:
    """lost: share of the time. Without that loss the rate would be at most ratio / (1 - lost).
    scatter: deviation of the ratio, by the samples that it is made of."""
    low = Limits().low
    if not slow:
        return "recovered", "as fast as others when alone: contention, or it has passed"
    if ratio >= low * (1 - lost):
        return "cpu", f"its process had no core to itself for {lost:.0%} of the time"
    if ratio > 1 - Limits().z * scatter:
        return "unsure", f"slow again, but samples scatter so that it may be chance ({scatter:.1%})"
    return "confirmed", "slow again, alone and with fresh partners"


def _beside_link(
    suspect: Suspect, own: Sequence[int], others: Sequence[int], apart: Apart, doubtful: Set[Pair]
) -> Chosen:
    """What its sender sends and its receiver receives, each with another node; where one of them
    has no sound pair of the kind, other pairs of that kind, or its own other direction."""
    sender, receiver = own
    kind, tried = apart(sender, receiver), [Pair(sender, receiver)]

    def sound(pair: Pair) -> bool:
        return apart(*pair) == kind and pair not in doubtful

    sends = [pair for n in others if sound(pair := Pair(sender, n))]
    receives = [pair for n in others if sound(pair := Pair(n, receiver))]
    if sends and receives:
        beside = [sends[0], receives[0]]
        return Chosen(list(dict.fromkeys((sends[0].receiver, receives[0].sender))), tried, beside)
    elsewhere = [Pair(a, b) for a in others for b in others if a != b]
    beside = [pair for pair in (*elsewhere, Pair(receiver, sender)) if sound(pair)]
    return Chosen([], tried, beside[:_PARTNERS])


def _beside_node(
    suspect: Suspect, own: Sequence[int], others: Sequence[int], apart: Apart, doubtful: Set[Pair]
) -> Chosen:
    """With others of its leaf where there are enough, else with others across."""
    (node,) = own

    def with_those(kind: bool) -> Chosen:
        partners = [n for n in others if apart(node, n) == kind][:_PARTNERS]
        sends = [Pair(node, partner) for partner in partners]
        receives = [Pair(partner, node) for partner in partners]
        tried = {"send": sends, "receive": receives}.get(suspect.kind, [*sends, *receives])
        both = [
            sound for a in partners for b in others if a != b and apart(a, b) == kind
            if (sound := [p for p in (Pair(a, b), Pair(b, a)) if p not in doubtful])
        ]  # fmt: skip
        return Chosen(partners, tried, both[0] if both else [])

    return max(map(with_those, (False, True)), key=lambda c: (bool(c.reference), len(c.partners)))


def _by_way(tried: Sequence[Pair], own: Sequence[int]) -> dict[str, list[Pair]]:
    found: dict[str, list[Pair]] = {}
    for pair in tried:
        found.setdefault("send" if pair.sender == own[0] else "receive", []).append(pair)
    return found


def _narrowed(kind: Kind, slow: Sequence[str]) -> Kind:
    if kind != "node" or len(slow) != 1:
        return kind
    return "send" if slow[0] == "send" else "receive"


def _rate(measurement: Measurement) -> float:
    return float(np.median(measurement.rates))


def _scatter(measurements: Sequence[Measurement]) -> float:
    return float(np.median([deviation_of_median(m.rates) for m in measurements]))


def _more_than(lost: float, healthy: Sequence[Measurement]) -> float:
    """What a loss can explain: healthy pairs lost some of their time, too, and were fast."""
    usual = max((_lost(m, n) for m in healthy for n in (m.sender, m.receiver)), default=0.0)
    return lost if lost == 1.0 else max(0.0, lost - usual)


def _lost(measurement: Measurement, name: str) -> float:
    """Share of the time of a measurement that this node's end of it had no core; all of it where
    it computed nearly all the time."""
    end = measurement.at_sender if measurement.sender == name else measurement.at_receiver
    if end is None:
        return 0.0
    return 1.0 if end.is_busy else (end.waited_s or 0.0) / end.wall_s
