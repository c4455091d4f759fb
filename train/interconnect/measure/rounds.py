"""Who measures with whom, and when: rounds of ordered pairs that share no node.

Nodes are numbers from 0. A round is what runs at the same time; every pair is measured in each
direction apart, because a fault may sit in one of them only.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from typing import NamedTuple

from train.interconnect.record import ALL_PAIRS, LEAST, PARTNERS


class Pair(NamedTuple):
    sender: int
    receiver: int


Round = tuple[Pair, ...]


def circle(count: int) -> list[Round]:
    """Every pair of ``count`` nodes once, in one direction: the circle method.

    One node stays, the others move on by one place per round: n - 1 rounds of n/2 pairs for even n;
    for odd n there are n rounds, in each of which one node rests (Kirkman 1847).
    """
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        facing = zip(seats[:half], reversed(seats[half:]), strict=True)
        rounds.append(tuple(Pair(a, b) for a, b in facing if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return [pairs for pairs in rounds if pairs]


def both_ways(rounds: Iterable[Round]) -> list[Round]:
    """Each round, then the same with senders and receivers exchanged; of the circle, all ordered
    pairs in 2 (n - 1) rounds, 2 n for odd n."""
    return [
        way
        for pairs in rounds
        for way in (pairs, tuple(Pair(pair.receiver, pair.sender) for pair in pairs))
    ]


def some_partners(count: int, partners: int, seed: int) -> list[Round]:
    """Each node with ``partners`` others, drawn at random, both ways; for many nodes.

    Rounds of a randomly numbered circle, so no pair comes twice. A good node among b bad ones meets
    bad ones only with probability of about (b/n)^partners. All there are, where there are no more.
    """
    rounds = circle(count)
    if partners >= len(rounds):
        return both_ways(rounds)
    draw = random.Random(seed)  # noqa: S311  (a schedule, no secret)
    names = draw.sample(range(count), count)
    chosen = sorted(draw.sample(range(len(rounds)), partners))
    return both_ways(
        tuple(Pair(names[pair.sender], names[pair.receiver]) for pair in rounds[number])
        for number in chosen
    )


def at_most(rounds: Iterable[Round], company: int) -> list[Round]:
    """Each round in parts of up to ``company`` pairs: for a fabric, or a machine, that cannot carry
    more at once."""
    return [pairs[at : at + company] for pairs in rounds for at in range(0, len(pairs), company)]


def scheduled(count: int, company: int, seed: int, most: int | None = None) -> list[Round]:
    """Every pair where that is no more than ``most`` rounds; else every node with some others.

    Two nodes are known by all others, many by a few of them: above ALL_PAIRS nodes, and where time
    is short, each meets as many as fit, but at least LEAST.
    """
    partners = count if count <= ALL_PAIRS else PARTNERS
    found = at_most(some_partners(count, partners, seed), company)
    if most is None or len(found) <= most:
        return found
    each = 2 * math.ceil(count // 2 / company)  # rounds for one more partner
    return at_most(some_partners(count, max(LEAST, most // each), seed), company)
