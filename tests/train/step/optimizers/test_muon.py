"""Muon beyond its rule, which test_optimizers proves: which variables it is for, and the iteration
against singular values from numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.train.references.muon_rule import orthogonalised
from tests.train.step.optimizers.toy import SHAPES, length, one, relative
from train.config.optimizer import Muon

pytestmark = pytest.mark.tf

NAME, RATE = "S5 Muon", 0.1
SIZES = [(64, 576), (128, 512), (576, 64), (64, 128)]


def iterate(matrix: np.ndarray, steps: int) -> np.ndarray:
    import tensorflow as tf

    from train.step.optimizers.muon import newton_schulz

    found = newton_schulz(tf.constant(matrix, tf.float32), steps)
    assert found.dtype == tf.float32
    return found.numpy().astype(np.float64)


def gaussian(rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng([0, rows]).normal(size=(rows, columns))


def test_before_the_step_a_convolution_has_the_norm_of_its_channels(invariant: Any) -> None:
    """Seen alone with a rate of zero, when nothing is left but the rescaling. No dense kernel is
    rescaled: nothing behind it takes its length away."""
    shape = SHAPES["conv/kernel"]
    weight = np.random.default_rng(3).normal(0, 2, shape)
    path = one(Muon(dense=True), weight, [np.ones(shape)], [0.0], "conv/kernel")
    error = length(path[1]) / np.sqrt(shape[-1]) - 1
    invariant(NAME, "|w| = sqrt(c_out) before the step", error, 1e-6)
    assert relative(path[1] / length(path[1]), weight / length(weight)) < 1e-6
    for config, name in ((Muon(fix_norm=False), "conv/kernel"), (Muon(dense=True), "dense/kernel")):
        kept = one(config, np.ones(SHAPES[name]), [np.ones(SHAPES[name])], [0.0], name)
        assert np.array_equal(kept[0], kept[1])


@pytest.mark.parametrize("size", SIZES)
def test_gaussian_matrices_end_near_orthogonal(size: tuple[int, int], invariant: Any) -> None:
    for steps in (3, 5):
        values = np.linalg.svd(iterate(gaussian(*size), steps), compute_uv=False)
        error = float(np.abs(values - 0.95).max())
        statement = "singular values in [0.65, 1.25], Gaussian, n >= 2m, 3-5 iterations"
        invariant(NAME, statement, error, 0.30)


@pytest.mark.parametrize("size", [*SIZES, (40, 40), (1, 7), (7, 1)])
def test_it_is_the_polynomial_of_the_singular_values(size: tuple[int, int], invariant: Any) -> None:
    """Whatever the length of the matrix; one of zeros stays zeros."""
    for steps, scale in ((1, 1.0), (5, 1e-8), (5, 1e6)):
        matrix = gaussian(*size)
        error = relative(iterate(scale * matrix, steps), orthogonalised(matrix, steps))
        invariant(NAME, "U p(S) V' by numpy's decomposition", error, 1e-5)
    assert not iterate(np.zeros(size), 5).any()
