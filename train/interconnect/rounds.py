"""Who measures with whom, and when: rounds of ordered pairs that share no node.

Nodes are numbers from 0. A round is what runs at the same time; every pair is measured in each
direction apart, because a fault may sit in one of them only.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple


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
    """Each round, then the same with senders and receivers exchanged."""
    return [
        way
        for pairs in rounds
        for way in (pairs, tuple(Pair(pair.receiver, pair.sender) for pair in pairs))
    ]


def everyone(count: int) -> list[Round]:
    """All ordered pairs: 2 (n - 1) rounds, 2 n for odd n."""
    return both_ways(circle(count))


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


def within(groups: Sequence[Sequence[int]], partners: int, seed: int) -> list[Round]:
    """The same inside of each group of nodes (those of one switch), all groups at a time."""
    own = [
        [tuple(Pair(group[a], group[b]) for a, b in pairs) for pairs in plan]
        for group in groups
        for plan in [some_partners(len(group), partners, seed)]
    ]
    longest = max((len(plan) for plan in own), default=0)
    return [
        tuple(pair for plan in own if number < len(plan) for pair in plan[number])
        for number in range(longest)
    ]


def one_at_a_time(rounds: Iterable[Round]) -> list[Round]:
    """For a fabric, or a machine, that cannot carry several pairs at once."""
    return [(pair,) for pairs in rounds for pair in pairs]
