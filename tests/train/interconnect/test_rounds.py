"""Schedules by their defining properties: who meets whom, how often, and nobody twice at a time."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.interconnect.rounds import (
    Pair,
    both_ways,
    circle,
    everyone,
    one_at_a_time,
    some_partners,
    within,
)

counts = st.integers(2, 40)


def disjoint(pairs: tuple[Pair, ...]) -> bool:
    nodes = [node for pair in pairs for node in pair]
    return len(nodes) == len(set(nodes))


@given(counts)
def test_everyone_sends_to_everyone_once_in_as_few_rounds_as_there_can_be(count: int) -> None:
    rounds = everyone(count)
    met = Counter(pair for pairs in rounds for pair in pairs)
    assert met == Counter(permutations(range(count), 2))
    assert all(disjoint(pairs) for pairs in rounds)
    assert len(rounds) == 2 * (count - 1 if count % 2 == 0 else count)


@pytest.mark.parametrize("count", [0, 1])
def test_one_node_has_nobody_to_meet(count: int) -> None:
    assert circle(count) == [] and everyone(count) == []


@given(counts, st.integers(1, 9), st.integers(0, 99))
def test_some_partners_are_others_each_time(count: int, partners: int, seed: int) -> None:
    rounds = some_partners(count, partners, seed)
    met = Counter(pair for pairs in rounds for pair in pairs)
    assert set(met.values()) == {1} and all(disjoint(pairs) for pairs in rounds)
    sent = Counter(pair.sender for pair in met)
    rests = count % 2  # of an odd number one rests in each round
    assert all(min(partners, count - 1) - rests <= sent[node] <= partners for node in range(count))
    assert rounds == some_partners(count, partners, seed)


def test_seeds_draw_other_partners() -> None:
    assert some_partners(64, 4, 1) != some_partners(64, 4, 2)


def test_groups_meet_inside_themselves_and_all_at_once() -> None:
    groups = [(0, 1, 2, 3), (4, 5, 6), (7,)]
    rounds = within(groups, 9, 0)
    met = {pair for pairs in rounds for pair in pairs}
    assert met == {Pair(a, b) for group in groups for a, b in permutations(group, 2)}
    assert all(disjoint(pairs) for pairs in rounds)
    assert any({0, 4} <= {n // 4 * 4 for pair in pairs for n in pair} for pairs in rounds)


def test_directions_follow_each_other() -> None:
    assert both_ways([(Pair(0, 1), Pair(2, 3))]) == [
        (Pair(0, 1), Pair(2, 3)),
        (Pair(1, 0), Pair(3, 2)),
    ]


def test_one_at_a_time_keeps_all() -> None:
    rounds = one_at_a_time(everyone(5))
    assert len(rounds) == 20 and {len(pairs) for pairs in rounds} == {1}
