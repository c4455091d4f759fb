"""Schedules by their defining properties: who meets whom, how often, and nobody twice at a time."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.interconnect.measure.rounds import (
    Pair,
    at_most,
    both_ways,
    circle,
    scheduled,
    some_partners,
)
from train.interconnect.record import LEAST

counts = st.integers(2, 40)


def disjoint(pairs: tuple[Pair, ...]) -> bool:
    nodes = [node for pair in pairs for node in pair]
    return len(nodes) == len(set(nodes))


@given(counts)
def test_everyone_sends_to_everyone_once_in_as_few_rounds_as_there_can_be(count: int) -> None:
    rounds = both_ways(circle(count))
    met = Counter(pair for pairs in rounds for pair in pairs)
    assert met == Counter(permutations(range(count), 2))
    assert all(disjoint(pairs) for pairs in rounds)
    assert len(rounds) == 2 * (count - 1 if count % 2 == 0 else count)


@pytest.mark.parametrize("count", [0, 1])
def test_one_node_has_nobody_to_meet(count: int) -> None:
    assert circle(count) == [] and both_ways(circle(count)) == []


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


def test_directions_follow_each_other() -> None:
    assert both_ways([(Pair(0, 1), Pair(2, 3))]) == [
        (Pair(0, 1), Pair(2, 3)),
        (Pair(1, 0), Pair(3, 2)),
    ]


@given(counts, st.integers(1, 9))
def test_less_company_keeps_all_pairs(count: int, company: int) -> None:
    rounds = at_most(both_ways(circle(count)), company)
    assert [pair for pairs in rounds for pair in pairs] == [
        p for r in both_ways(circle(count)) for p in r
    ]
    assert max(len(pairs) for pairs in rounds) == min(company, count // 2)


@given(counts, st.integers(1, 20), st.integers(0, 200))
def test_a_schedule_keeps_to_its_rounds_but_for_the_least(
    count: int, company: int, most: int
) -> None:
    rounds = scheduled(count, company, 0, most)
    sent = Counter(pair.sender for pairs in rounds for pair in pairs)
    rests = count % 2
    assert all(sent[node] >= min(LEAST, count - 1) - rests for node in range(count))
    few = at_most(some_partners(count, LEAST, 0), company)
    assert len(rounds) <= max(most, len(few))
    assert scheduled(count, company, 0) == at_most(both_ways(circle(count)), company)


def test_many_nodes_meet_some_others_even_with_time() -> None:
    assert len(scheduled(1024, 512, 0)) == 16
