"""Multiplicative noise: the moments of Hoffer et al. 2017 (1705.08741), section 4."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tf
T10 = "T10 multiplicative noise"


def draw(batch: int, sigma: float, steps: int, stream: int = 7) -> np.ndarray:
    """The weights of steps 0, 1, ...: [steps, batch], by way of the step's own seed."""
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.step.backward import sample_weights

    seed = StepSeed(stream)

    def one(step: tf.Tensor) -> tf.Tensor:
        seed.set_step(step)
        return sample_weights(batch, sigma, seed.value)

    @tf.function
    def all_steps() -> tf.Tensor:
        return tf.map_fn(one, tf.range(steps), tf.float32, parallel_iterations=1)

    return all_steps().numpy()


def test_moments_of_the_noisy_gradient(invariant):
    """Fixed per-image gradients: the mean over draws stays, only the scatter grows."""
    images, sigma, steps = 32, 2.0, 4000
    gradients = np.random.default_rng(1).normal(1, 1, (images, 3))
    noisy = draw(images, sigma, steps) @ gradients / images
    error = np.abs(noisy.mean(0) - gradients.mean(0)) / (noisy.std(0) / steps**0.5)
    invariant(T10, "mean over draws is the gradient, in standard errors", error.max(), 3)

    # all images alike: one z per rank or step would give s^2 here, M times as much
    alike = draw(images, sigma, steps).mean(axis=1)
    invariant(T10, "alike images: variance s^2 / M, in standard errors",
              _off(alike, sigma**2 / images), 3)  # fmt: skip


def test_scatters_as_the_small_batch(invariant):
    """Fresh images in every draw, as in training: covariance C / M0 although M are averaged."""
    from train.step.backward import sigma_for

    images, small, steps = 256, 16, 3000
    deviations = np.array([0.5, 1.0, 3.0])
    rng = np.random.default_rng(3)
    weights = draw(images, sigma_for(images, small), steps)
    noisy = np.stack([
        row @ rng.normal(0, deviations, (images, 3)) / images for row in weights
    ])  # fmt: skip
    worst = max(_off(noisy[:, i], deviations[i] ** 2 / small) for i in range(3))
    invariant(T10, "variance is that of batch M0, in standard errors", worst, 3)
    # and it is the noise that does it
    assert noisy.var(0).sum() > 10 * (deviations**2 / images).sum()


def test_every_rank_and_step_has_its_own_and_a_resumed_run_the_same(invariant):
    first, again, other = draw(64, 1.0, 50), draw(64, 1.0, 50), draw(64, 1.0, 50, stream=8)
    assert np.array_equal(first, again)
    assert len(np.unique(np.concatenate([first, other]))) == 2 * first.size
    # of 3,200 independent pairs: the correlation's standard error is 1 / sqrt(3200)
    between = np.corrcoef(first.ravel(), other.ravel())[0, 1] * first.size**0.5
    invariant(T10, "ranks independent: correlation in standard errors", between, 3)


def test_independent_of_dropout_masks_of_the_same_step():
    """A layer's seed is folded with a small index, the noise with a number that no layer has."""
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.step.backward import sample_weights

    seed = StepSeed(7)
    weights = sample_weights(16, 1.0, seed.value).numpy()
    for index in range(100):
        folded = tf.random.experimental.stateless_fold_in(seed.value, index)
        assert not np.allclose(1 + tf.random.stateless_normal([16], folded).numpy(), weights)


def _off(draws: np.ndarray, variance: float) -> float:
    """Distance of the draws' variance from the expected one, in standard errors of a variance."""
    ratio = draws.var(ddof=1) / variance
    kurtosis = np.mean((draws - draws.mean()) ** 4) / draws.var() ** 2
    return abs(ratio - 1) / ((kurtosis - 1) / len(draws)) ** 0.5
