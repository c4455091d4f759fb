"""Intervals of ratios against closed forms; tests/bench simulates how often they hold."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from analysis.stats.ratios import ratio
from analysis.table import Estimate


def test_few_values_have_students_interval() -> None:
    few = {"a": (0.8,), "b": (0.9,), "c": (0.95,)}
    found = ratio(few, dict.fromkeys(few, (1.0,)))
    expected = ttest_1samp(np.log([0.8, 0.9, 0.95]), 0).confidence_interval(0.95)
    assert (found.value, found.n) == (pytest.approx(0.9), 3)
    assert (found.low, found.high) == pytest.approx((np.exp(expected.low), np.exp(expected.high)))


def test_more_values_have_the_order_statistics_of_their_median() -> None:
    now = {f"{i}": (0.9 + i / 100,) for i in range(9)}
    found = ratio(now, dict.fromkeys(now, (1.0,)))
    assert found[:3] == pytest.approx((0.94, 0.91, 0.97))


def test_one_slow_node_does_not_widen_the_interval_of_the_others() -> None:
    now = {p: ((0.3 if "c" in p else 1.0) * 1e8,) for p in permutations("abcdefgh", 2)}
    found = ratio(now, dict.fromkeys(now, (1e8,)))
    assert found.low == found.value == found.high == 1.0


def test_half_of_the_pairs_slower_is_no_narrow_interval() -> None:
    """Each node has as many slow pairs as any other: deleting nodes shows nothing."""
    now = {p: ((0.5 if len({*p} & {*"abcd"}) == 1 else 1.0) * 1e8,)
           for p in permutations("abcdefgh", 2)}  # fmt: skip
    found = ratio(now, dict.fromkeys(now, (1e8,)))
    assert found[:3] == pytest.approx((0.5, 0.5, 1.0))


def test_one_value_has_no_interval() -> None:
    found = ratio({"a": (0.5,)}, {"a": (1.0,), "b": (1.0,)})
    assert found == Estimate(0.5, n=1, note="a single value, so without an interval")
