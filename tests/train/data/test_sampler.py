"""Shards: disjoint, covering, equal on all ranks in number, independent of how ranks are cut."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from train.config.run import used_train_images
from train.data.sampling import apportion, evaluation_shard, rank_batches, shuffled, used_subset

SEEDS = st.integers(0, 2**31 - 1)
EPOCHS = st.integers(0, 500)


@given(n=st.integers(0, 400), seed=SEEDS, epoch=EPOCHS)
def test_an_epoch_is_one_permutation(n: int, seed: int, epoch: int) -> None:
    order = shuffled(n, seed, epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))
    assert np.array_equal(order, shuffled(n, seed, epoch))


def test_order_is_uniform() -> None:
    """Chi-squared of value against place over 4,000 seeds; 25 cells, 16 degrees of freedom."""
    counts = np.zeros((5, 5))
    for seed in range(4000):
        counts[np.arange(5), shuffled(5, seed, 3)] += 1
    assert ((counts - 800) ** 2 / 800).sum() < 45  # p = 1e-4 at 39.3


def test_order_never_changes() -> None:
    """Written down, so that a new NumPy that shuffles otherwise is noticed."""
    assert shuffled(10, 0, 0).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
    assert shuffled(10, 7, 3).tolist() == [2, 4, 7, 3, 5, 1, 8, 9, 0, 6]


@given(n=st.integers(1, 500), size=st.integers(1, 9), b=st.integers(1, 20), seed=SEEDS)
def test_k_ranks_of_b_see_the_batches_of_one_of_kb(n: int, size: int, b: int, seed: int) -> None:
    one = rank_batches("partition", n, seed, 2, 0, 1, size * b)
    ranks = [rank_batches("partition", n, seed, 2, r, size, b) for r in range(size)]
    assert np.array_equal(np.concatenate(ranks, axis=1), one)


@given(n=st.integers(0, 500), size=st.integers(1, 9), b=st.integers(1, 20), seed=SEEDS)
def test_independent_has_no_image_twice_on_a_rank(n: int, size: int, b: int, seed: int) -> None:
    for rank in range(size):
        mine = rank_batches("independent", n, seed, 1, rank, size, b)
        assert mine.shape == (n // (size * b), b)
        assert len(np.unique(mine)) == mine.size
        assert mine.size == 0 or (mine.min() >= 0 and mine.max() < n)


def test_rank_0_of_independent_does_not_draw_what_a_partition_does() -> None:
    for epoch in range(3):
        mine = rank_batches("independent", 1000, 5, epoch, 0, 1, 1000)[0]
        assert (mine == shuffled(1000, 5, epoch)).mean() < 0.1
        before = rank_batches("whole", 1000, 5, epoch, 0, 1, 1000)[0]
        assert np.array_equal(before, shuffled(1000, 5, epoch)), "as in records that are there"


def test_independent_ranks_draw_by_themselves() -> None:
    parts = [rank_batches("independent", 1000, 0, 0, rank, 4, 50) for rank in range(4)]
    distinct = len(np.unique(np.concatenate(parts)))
    # 1 - (3/4)^4 = 0.684 of the set, standard deviation under 0.01; a partition would have 1.0
    assert 0.63 < distinct / 1000 < 0.73
    again = rank_batches("independent", 1000, 0, 0, 2, 4, 50)
    assert np.array_equal(parts[2], again)


@given(n=st.integers(0, 500), size=st.integers(1, 9), b=st.integers(1, 20), seed=SEEDS)
def test_ranks_of_same_repeat_the_first_steps_of_one_rank(
    n: int, size: int, b: int, seed: int
) -> None:
    alone = rank_batches("partition", n, seed, 1, 0, 1, b)[: n // (size * b)]
    for rank in range(size):
        assert np.array_equal(rank_batches("same", n, seed, 1, rank, size, b), alone)


@given(n=st.integers(0, 200), size=st.integers(1, 9))
def test_evaluation_sees_each_image_once(n: int, size: int) -> None:
    shards = [evaluation_shard(n, rank, size) for rank in range(size)]
    assert sorted(np.concatenate(shards).tolist()) == list(range(n))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


LABELS = st.lists(st.integers(0, 5), min_size=1, max_size=300).map(
    lambda values: np.array(values, np.int64)
)


@given(labels=LABELS, fraction=st.floats(0.001, 1))
def test_subset_is_exact_sorted_and_stratified(labels: np.ndarray, fraction: float) -> None:
    used = used_train_images(len(labels), fraction)
    chosen = used_subset(labels, used)
    assert chosen.dtype == np.int64
    assert len(chosen) == used == len(np.unique(chosen))
    assert np.array_equal(chosen, np.sort(chosen))
    exact = np.bincount(labels, minlength=6) * (used / len(labels))
    assert (np.abs(np.bincount(labels[chosen], minlength=6) - exact) < 1).all()


def test_subset_is_not_simply_the_first_images() -> None:
    labels = np.zeros(1000, np.int64)
    chosen = used_subset(labels, 100)
    assert 350 < chosen.mean() < 650
    assert np.array_equal(chosen, used_subset(labels, 100))


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
