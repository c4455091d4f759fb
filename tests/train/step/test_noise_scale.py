"""The estimators against gradients whose noise is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.invariants import Invariant
from tests.train.known_noise import S2, Array, World, drawn, known, norms
from train.step.noise_scale import epoch_noise, estimate

STEPS = 400


def z_score(values: Array, truth: float, sd: float | None = None) -> float:
    """Distance of the mean from the truth in standard errors."""
    sd = float(values.std(ddof=1)) if sd is None else sd
    return abs(float(values.mean()) - truth) / (sd / math.sqrt(len(values)))


@pytest.mark.parametrize(("k", "b"), [(2, 32), (8, 32), (16, 512)])
def test_known_gaussians(k: int, b: int, invariant: Invariant) -> None:
    world = known(k, b)
    trace, gradient_sq = estimate(*drawn(world, STEPS, k, images=b < 100), b, world.big)
    sd_trace, sd_gradient = world.sd_of_estimates()
    name = f"k={k}, b={b}: mean over {STEPS} steps against the truth, standard errors"
    invariant(S2, f"S, {name}", z_score(trace, world.trace, sd_trace), 3)
    invariant(S2, f"G2, {name}", z_score(gradient_sq, world.gradient_sq, sd_gradient), 3)
    # 3 standard errors mean something only where these are what theory says
    assert trace.std(ddof=1) == pytest.approx(sd_trace, rel=0.15)
    assert gradient_sq.std(ddof=1) == pytest.approx(sd_gradient, rel=0.15)


def test_noisy_quadratic_grows_towards_the_minimum(invariant: Invariant) -> None:
    """L = (w - x)^2 / 2 with x ~ N(mu, s^2 I): gradient w - mu, covariance s^2 I everywhere."""
    d, s, k, b = 30, 0.7, 8, 16
    found = []
    for distance in (3.0, 1.0, 0.3, 0.1):
        rng = np.random.default_rng(5)
        mu = rng.standard_normal(d)
        w = mu + distance * np.eye(d)[0]
        x = mu + s * rng.standard_normal((STEPS, k, b, d))
        trace, gradient_sq = estimate(*norms((w - x).mean(2)), b, k * b)
        truth = d * s**2 / distance**2
        value = trace.mean() / gradient_sq.mean()
        # delta method
        scatter = trace - value * gradient_sq
        error = scatter.std(ddof=1) / math.sqrt(STEPS) / gradient_sq.mean()
        found.append(value)
        statement = "noisy quadratic: B_simple against d s^2 / |w - mu|^2, standard errors"
        invariant(S2, statement, abs(value - truth) / error, 3)
    assert found == sorted(found)
    assert found[-1] > 500 * found[0]


def test_trace_is_the_scatter_about_the_mean(invariant: Invariant) -> None:
    gradients = np.random.default_rng(1).standard_normal((50, 6, 20)) + 0.3
    trace, gradient_sq = estimate(*norms(gradients), 32, 6 * 32)
    mean = gradients.mean(1, keepdims=True)
    scatter = 32 / 5 * ((gradients - mean) ** 2).sum((1, 2))
    invariant(S2, "S = b/(k-1) sum |g_r - mean|^2, relative", np.abs(trace / scatter - 1).max(),
              1e-12)  # fmt: skip
    both = (mean**2).sum((1, 2)) - scatter / (6 * 32)
    invariant(S2, "G2 = |mean|^2 - S/B", np.abs(gradient_sq - both).max(), 1e-12)


def test_ratio_of_averages_and_not_the_average_ratio(invariant: Invariant) -> None:
    """k = 2, b = 32, truth 500: single steps have a G2 near zero, and ratios without bound."""
    world = World(np.full(100, math.sqrt(1 / 500)), np.ones(100), 2, 32)
    small, big = drawn(world, 4000, 3)
    trace, gradient_sq = estimate(small, big, 32, 64)
    found = epoch_noise(small, big, 32, 64, seed=0)
    invariant(S2, "k=2, b=32, truth 500: ratio of averages, relative", found.b_simple / 500 - 1,
              0.1)  # fmt: skip
    assert found.b_simple == trace.mean() / gradient_sq.mean()
    assert abs((trace / gradient_sq).mean() / 500 - 1) > 1


def test_drawing_without_replacement_leaves_the_trace_unbiased(invariant: Invariant) -> None:
    """All N images of a data set in steps of k x b, epoch after epoch."""
    images, k, b, epochs = 192, 3, 16, 300
    rng = np.random.default_rng(4)
    each = rng.standard_normal((images, 12)) + 0.2
    order = np.stack([rng.permutation(images) for _ in range(epochs)])
    gradients = each[order].reshape(epochs, images // (k * b), k, b, 12).mean(3)
    # the steps of an epoch lean on each other: an epoch is one value
    pairs = [estimate(*norms(g), b, k * b) for g in gradients]
    trace, gradient_sq = (np.array([pair[i].mean() for pair in pairs]) for i in (0, 1))
    truth = float(each.var(0, ddof=1).sum())
    mean = each.mean(0)
    name = "without replacement, standard errors"
    invariant(S2, f"S {name}", z_score(trace, truth), 3)
    invariant(S2, f"G2 + S/N {name}", z_score(gradient_sq + truth / images, float(mean @ mean)), 3)
    # and the correction is no small change here
    assert z_score(gradient_sq, float(mean @ mean)) > 10
