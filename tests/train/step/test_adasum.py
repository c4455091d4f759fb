"""Adasum is the published rule: its exact cases, and real ranks against the formula in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.train.programs import adasum_ranks

pytestmark = pytest.mark.tf
PROGRAM = Path(adasum_ranks.__file__)
T13 = "T13 Adasum"


def pair(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Maleki et al. 2020 (2006.02924), word for word, in float64."""
    if not a.any():
        return b
    if not b.any():
        return a
    dot = (a * b).sum()
    return (1 - dot / (2 * (a * a).sum())) * a + (1 - dot / (2 * (b * b).sum())) * b


def tree_of(vectors: Sequence[np.ndarray]) -> np.ndarray:
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    return pair(tree_of(vectors[:half]), tree_of(vectors[half:]))


def combined(vectors: Sequence[Sequence[float]] | np.ndarray) -> np.ndarray:
    """Adasum in this process."""
    import tensorflow as tf

    from train.step.adasum import dot_products, mix, tree_weights

    flat = tf.constant(np.reshape(vectors, (len(vectors), -1)), tf.float32)
    return mix(flat, tree_weights(dot_products(flat))).numpy().reshape(np.shape(vectors)[1:])


A, B = np.array([1.0, -2.0, 0.5]), np.array([0.25, 3.0, 4.0])
CASES = {
    "orthogonal vectors: their sum": ([[3, 0, 0], [0, 4, 0]], [3, 4, 0]),
    "A(a, a) = a": ([A, A], A),
    "A(a, -a) = 0": ([A, -A], 0 * A),
    "A(a, 2a) = 1.5 a": ([A, 2 * A], 1.5 * A),
    "8 identical vectors: the same": ([A] * 8, A),
    "8 basis vectors: ones": (np.eye(8), np.ones(8)),
    "A(0, b) = b": ([0 * B, B], B),
    "A(a, 0) = a": ([A, 0 * A], A),
    "A(0, 0) = 0": ([0 * A, 0 * A], 0 * A),
    "a pair that cancelled is zero to the next": ([A, -A, B, B], B),
}


@pytest.mark.parametrize("statement", CASES)
def test_exact_cases(statement, invariant):
    vectors, expected = CASES[statement]
    invariant(T13, statement, np.abs(combined(vectors) - expected).max(), 0)


def test_scale_and_order(invariant):
    """A(ca, cb) = c A(a, b), also where float32 could not hold the squares; A(a, b) = A(b, a)."""
    a, b = np.random.default_rng(1).normal(size=(2, 1000))
    plain = combined([a, b])
    for power in (-80, 3, 40):
        scaled = combined([a * 2.0**power, b * 2.0**power]) / np.float32(2.0) ** power
        invariant(T13, "A(ca, cb) = c A(a, b)", np.abs(scaled - plain).max(), 0)
    invariant(T13, "A(a, b) = A(b, a)", np.abs(combined([b, a]) - plain).max(), 1e-7)


@pytest.mark.parametrize("k", [1, 2, 4, 8, 16])
def test_tree_of_any_depth(k, invariant):
    """Weights found from the leaves' dot products are the tree of vectors."""
    rng = np.random.default_rng(k)
    vectors = (rng.normal(size=(1, 3, 40)) + rng.normal(size=(k, 3, 40))).astype(np.float32)
    expected = tree_of(list(np.float64(vectors)))
    error = np.abs(combined(vectors) - expected).max() / np.abs(expected).max()
    invariant(T13, "the binary tree of the formula, k to 16", error, 1e-6)


def test_between_mean_and_sum(invariant):
    """Signal alone: the mean. Noise alone, in many dimensions: k times the mean."""
    rng = np.random.default_rng(9)
    signal, noise = rng.normal(size=100_000), rng.normal(size=(8, 100_000))
    for name, vectors, expected in (
        ("|adasum| / |mean| -> 1 where signal dominates", signal + 1e-3 * noise, 1),
        ("|adasum| / |mean| -> k where noise dominates", 1e-3 * signal + noise, 8),
    ):
        ratio = np.linalg.norm(combined(vectors)) / np.linalg.norm(vectors.mean(axis=0))
        invariant(T13, name, ratio / expected - 1, 0.01)


def test_what_cancels_down_to_rounding_counts_as_zero():
    """Else a direction made of rounding would weigh as much as a gradient."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 500)).astype(np.float32)
    nearly = -np.nextafter(a, np.float32(9))
    found = combined([a, nearly, b, b])
    assert np.abs(found - b).max() < 1e-6


def test_not_finite_stays_not_finite():
    for bad in (np.inf, np.nan):
        for place in ([[bad, 1], [1, 1]], [[0, 0], [bad, 1]], [[1, 1], [-1, -1], [bad, 0], [0, 0]]):
            assert not np.isfinite(combined(place)).all(), place


@pytest.mark.ranks2
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_real_ranks(start_ranks, tmp_path, invariant, size):
    start_ranks([str(PROGRAM), str(tmp_path)], size)
    found = [dict(np.load(tmp_path / f"adasum-{rank}.npz")) for rank in range(size)]
    own = [adasum_ranks.gradients(rank) for rank in range(size)]
    assert {name: found[0][name].shape for name in own[0]} == {n: own[0][n].shape for n in own[0]}
    for name in found[0]:
        for other in found[1:]:
            assert np.array_equal(found[0][name], other[name], equal_nan=True), name
    assert float(found[0].pop("small")) == np.mean([adasum_ranks.square(r) for r in range(size)])
    assert not np.isfinite(found[0].pop("infinite")).any()

    worst = 0.0
    for name in found[0]:
        expected = tree_of([of[name].astype(float) for of in own])
        scale = max(np.abs(of[name]).max() for of in own) or 1.0
        worst = max(worst, float(np.abs(found[0][name] - expected).max() / scale))
    invariant(T13, "real ranks, per tensor: the formula", worst, 1e-6)
    assert np.array_equal(found[0]["equal"], own[0]["equal"])
    assert np.array_equal(found[0]["opposite"], np.zeros(6))
