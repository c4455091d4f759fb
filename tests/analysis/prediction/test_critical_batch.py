"""The law, its intervals and its censoring, against exact points and simulated runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from analysis.prediction.critical_batch import (
    CriticalBatch,
    fit_critical_batch,
    law,
)

BATCHES = 2.0 ** np.arange(6, 15)
SMALLEST, CRITICAL = 60.0, 900.0


def fitted(batch: np.ndarray, steps: np.ndarray, budget: np.ndarray | float = math.inf):
    reached = steps <= budget
    found = fit_critical_batch(batch, np.minimum(steps, budget), reached)
    assert isinstance(found, CriticalBatch)
    return found


def simulated(batches: np.ndarray, seeds: int, sd: float, seed: int):
    batch = np.repeat(batches, seeds)
    noise = np.random.default_rng(seed).normal(size=len(batch))
    return batch, law(batch, SMALLEST, CRITICAL) * np.exp(sd * noise)


def test_exact_points_give_the_law_back() -> None:
    found = fitted(BATCHES, law(BATCHES, SMALLEST, CRITICAL))
    assert found.steps_min.value == pytest.approx(SMALLEST, rel=1e-6)
    assert found.batch.value == pytest.approx(CRITICAL, rel=1e-6)
    assert found.batch.low is None and found.batch.note == "no variance"


@pytest.mark.parametrize("budget", [math.inf, 150.0])
def test_the_maximum_is_that_of_a_general_optimiser(budget: float) -> None:
    batch, steps = simulated(BATCHES, 3, 0.2, seed=2)
    found = fitted(batch, steps, budget)

    def loss(x: np.ndarray) -> float:
        z = (np.log(np.minimum(steps, budget)) - x[0] - np.log1p(np.exp(x[1]) / batch)) / x[2]
        return -float(np.where(steps <= budget, stats.norm.logpdf(z) - np.log(x[2]),
                               stats.norm.logsf(z)).sum())  # fmt: skip

    start = [np.log(SMALLEST), np.log(CRITICAL), 0.2]
    best = optimize.minimize(loss, start, method="Nelder-Mead",
                             options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000})  # fmt: skip
    assert found.steps_min.value == pytest.approx(np.exp(best.x[0]), rel=1e-4)
    assert found.batch.value == pytest.approx(np.exp(best.x[1]), rel=1e-4)
    # the ends: where the best of the other two parameters is worse by the limit
    n = found.batch.n
    limit = n / 2 * np.log1p(stats.t.ppf(0.975, n - 2) ** 2 / (n - 2))
    for place, estimate in ((0, found.steps_min), (1, found.batch)):
        for end in (estimate.low, estimate.high):
            assert end is not None
            held = optimize.minimize(
                lambda x, i=place, at=end: loss(np.insert(x, i, np.log(at))),
                np.delete(best.x, place), method="Nelder-Mead",
                options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000},
            )  # fmt: skip
            assert held.fun - best.fun == pytest.approx(limit, rel=0.01)


@pytest.mark.parametrize("critical", [2e4, 1e6])
def test_the_ends_of_both_parameters_belong_together(critical: float) -> None:
    """Nearly exact points on the law's steep side: the more B_crit, the less S_min."""
    batch = np.repeat([32.0, 64.0, 128.0, 256.0], 3)
    noise = np.exp(np.random.default_rng(1).normal(0, 1e-4, len(batch)))
    found = fitted(batch, 100 * (1 + critical / batch) * noise)
    middle = math.exp(np.log(batch).mean())
    for c, s in ((found.batch.low, found.steps_min.high), (found.batch.high, found.steps_min.low)):
        if c is not None:
            assert s == pytest.approx(100 * (middle + critical) / (middle + c), rel=3e-4)
