"""AdaScale's gain against the paper's formula, written out in plain numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.invariants import Invariant
from train.step.adascale import AdaScale

T16 = "T16 AdaScale"


def norms(trace: float, gradient_sq: float, b: int, big: int) -> tuple[float, float]:
    """What a step with exactly these S and G2 would measure."""
    return gradient_sq + trace / b, gradient_sq + trace / big


def gains_of(scale: AdaScale, *steps: tuple[float, float]) -> list[float]:
    """Of the steps with these norms."""
    gains = []
    for step in steps:
        gains.append(scale.gain)
        scale = scale.after(*step)
    return gains


def steady(trace: float, gradient_sq: float, b: int, big: int, base: int | None = None) -> float:
    """The gain after some steps that all have the same S and G2."""
    return gains_of(AdaScale(b, big, base or b), *[norms(trace, gradient_sq, b, big)] * 5)[-1]


def published(rows: list[tuple[float, float]], b: int, big: int) -> list[float]:
    """Gains of all steps, 2007.05105 appendix B.3 in the paper's letters: S workers, sigma^2 the
    variance of one worker's gradient, mu^2 the squared gradient; all past samples kept."""
    workers = big // b
    theta = max(1 - workers / 1000, 0.0)
    gains, past = [], []
    sigma_bar = mu_bar = math.nan
    for small, mean in rows:
        if past:
            gains.append((sigma_bar + mu_bar) / (sigma_bar / workers + mu_bar))
        else:
            gains.append(1.0)
        sigma = workers / (workers - 1) * (small - mean)
        past.append((max(sigma, 0.0), max(mean - sigma / workers, 0.0)))
        if len(past) <= 1 / (1 - theta):
            sigma_bar, mu_bar = np.mean(past, axis=0)
        else:
            sigma_bar = theta * sigma_bar + (1 - theta) * past[-1][0]
            mu_bar = theta * mu_bar + (1 - theta) * past[-1][1]
    return gains


def test_between_the_ends(invariant: Invariant) -> None:
    k, b, errors, gains = 8, 16, [], []
    for noise_scale in np.geomspace(1e-2, 1e6, 30):
        found = steady(noise_scale, 1.0, b, k * b)
        wanted = (noise_scale / b + 1) / (noise_scale / (k * b) + 1)
        errors.append(abs(found / wanted - 1))
        gains.append(found)
    invariant(T16, "gain = (S/b + G2) / (S/B + G2), relative", max(errors), 1e-9)
    assert gains == sorted(gains)
    assert gains[0] == pytest.approx(1, abs=0.01)
    assert gains[-1] == pytest.approx(k, rel=0.01)


@pytest.mark.parametrize(("workers", "steps"), [(2, 700), (8, 300), (50, 60), (1000, 9), (2000, 9)])
def test_the_averages_of_the_paper(workers: int, steps: int, invariant: Invariant) -> None:
    """Mean of the first 1000 / S samples, then the moving average: noisy norms, some clipped."""
    rng = np.random.default_rng(workers)
    b, d = 4, 30
    rows = []
    for step in range(steps):
        # sums over so many workers straight from their distribution
        mean = 0.05 / math.sqrt(1 + step) + rng.standard_normal(d) / math.sqrt(b * workers)
        scatter = rng.chisquare(d * (workers - 1)) / (b * workers)
        rows.append((float(mean @ mean) + scatter, float(mean @ mean)))
    found = gains_of(AdaScale(b, b * workers, b), *rows)
    wanted = published(rows, b, b * workers)
    error = np.abs(np.array(found) / wanted - 1).max()
    invariant(T16, "averages of appendix B.3 over noisy steps, relative", error, 1e-10)
    assert found[0] == 1.0
    assert all(1 <= gain <= workers * (1 + 1e-12) for gain in found)
    assert len(set(found)) > steps / 2


def test_a_gain_does_not_see_its_own_step() -> None:
    first, last = norms(10.0, 1.0, 16, 64), (1.0, 1.0)
    calm, wild = (
        gains_of(AdaScale(16, 64, 16), first, norms(trace, 1.0, 16, 64), last)
        for trace in (0.0, 1e6)
    )
    assert calm[1] == wild[1] and calm[2] < wild[2]


def test_the_base_batch_need_not_be_that_of_a_rank(invariant: Invariant) -> None:
    """A base rate for 64 images is scaled as such, whatever a rank's batch: 16, 64 or 256."""
    gains = [steady(300.0, 1.0, b, 1024, 64) for b in (16, 64, 256)]
    wanted = (300 / 64 + 1) / (300 / 1024 + 1)
    error = max(abs(gain / wanted - 1) for gain in gains)
    invariant(T16, "gain over the base batch whatever the rank's, relative", error, 1e-12)
    assert steady(1.0, 0.0, 16, 1024, 64) == pytest.approx(1024 / 64)
    assert steady(300.0, 1.0, 16, 64, 64) == pytest.approx(1)


@pytest.mark.parametrize(
    ("scale", "steps"),
    [
        *((AdaScale(64, 64, base), [(x, x) for x in (1.0, 5.0, 0.1)]) for base in (64, 256)),
        # ranks that see the same images: by rounding the norm of the mean may be the larger one
        (AdaScale(16, 64, 16), [(1.0, 1.0 + 1e-5)] * 3),
        (AdaScale(16, 64, 16), [(0.0, 0.0)] * 3),
    ],
)
def test_one_gradient_per_step_equal_ones_or_none_have_gain_one(scale, steps) -> None:
    assert gains_of(scale, *steps) == [1, 1, 1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_an_overflow_is_not_taken_in(bad: float) -> None:
    scale = AdaScale(16, 64, 16).after(*norms(10.0, 1.0, 16, 64))
    assert scale.after(bad, 1.0) == scale.after(1.0, bad) == scale
