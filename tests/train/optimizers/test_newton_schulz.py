"""The iteration against singular values from numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.train.optimizers.toy import relative
from tests.train.references.muon_rule import orthogonalised

pytestmark = pytest.mark.tf

NAME = "S5 Muon"
SIZES = [(64, 576), (128, 512), (32, 800), (576, 64)]


def iterate(matrix: np.ndarray, steps: int) -> np.ndarray:
    import tensorflow as tf

    from train.optimizers.muon import newton_schulz

    found = newton_schulz(tf.constant(matrix, tf.float32), steps)
    assert found.dtype == tf.float32
    return found.numpy().astype(np.float64)


def gaussian(rows: int, columns: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, rows]).normal(size=(rows, columns))


@pytest.mark.parametrize("steps", [3, 4, 5])
@pytest.mark.parametrize("size", [*SIZES, (64, 128), (128, 256)])
def test_gaussian_matrices_end_near_orthogonal(
    steps: int, size: tuple[int, int], invariant: Any
) -> None:
    values = np.linalg.svd(iterate(gaussian(*size), steps), compute_uv=False)
    error = float(np.abs(values - 0.95).max())
    statement = "singular values in [0.65, 1.25], Gaussian, n >= 2m, 3-5 iterations"
    invariant(NAME, statement, error, 0.30)


@pytest.mark.parametrize("size", [*SIZES, (40, 40), (1, 7), (7, 1)])
@pytest.mark.parametrize("steps", [1, 5])
def test_it_is_the_polynomial_of_the_singular_values(
    steps: int, size: tuple[int, int], invariant: Any
) -> None:
    matrix = gaussian(*size)
    error = relative(iterate(matrix, steps), orthogonalised(matrix, steps))
    invariant(NAME, "U p(S) V' by numpy's decomposition", error, 1e-5)


@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e6])
def test_it_does_not_see_the_scale(scale: float, invariant: Any) -> None:
    matrix = gaussian(16, 48)
    error = relative(iterate(scale * matrix, 5), iterate(matrix, 5))
    invariant(NAME, "Newton-Schulz of c G is that of G, c from 1e-8 to 1e6", error, 1e-5)


def test_it_keeps_the_direction_of_an_orthogonal_matrix(invariant: Any) -> None:
    q, _ = np.linalg.qr(gaussian(48, 16))
    found = iterate(7.3 * q, 5)
    error = relative(found / np.linalg.norm(found), q / np.linalg.norm(q))
    invariant(NAME, "the direction of a scaled orthogonal matrix is kept", error, 1e-5)


def test_a_matrix_of_zeros_stays_one() -> None:
    assert not iterate(np.zeros((4, 9)), 5).any()
