"""Largest-remainder shares against a slow, independent reckoning, and fixed choices."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from train.data.sampling import apportion, take


def hamilton(counts: list[int], total: int) -> list[int]:
    """By the book, in fractions: the whole parts, then one more by falling remainder."""
    exact = [Fraction(count * total, sum(counts)) for count in counts]
    places = [int(share) for share in exact]
    order = sorted(range(len(counts)), key=lambda c: (places[c] - exact[c], c))
    for c in order[: total - sum(places)]:
        places[c] += 1
    return places


@given(st.data())
def test_apportion_is_hamiltons_method(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(0, 10_000), min_size=1, max_size=20).filter(any))
    total = data.draw(st.integers(0, sum(counts)))
    found = apportion(np.array(counts, np.int64), total)
    assert found.tolist() == hamilton(counts, total)
    assert found.sum() == total
    assert (found <= counts).all()


@given(labels=st.lists(st.integers(0, 3), min_size=1, max_size=100))
def test_take_splits_by_quota(labels: list[int]) -> None:
    array = np.array(labels, np.int64)
    quotas = np.bincount(array, minlength=4) // 2
    taken, rest = take(array, quotas)
    assert np.array_equal(np.bincount(array[taken], minlength=4), quotas)
    assert sorted([*taken.tolist(), *rest.tolist()]) == list(range(len(labels)))
    assert np.array_equal(taken, np.sort(taken))
    assert np.array_equal(rest, np.sort(rest))
