"""The law, its intervals and its censoring, against exact points and simulated runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from analysis.prediction import Refusal
from analysis.prediction.critical_batch import (
    CriticalBatch,
    fit_critical_batch,
    law,
    speed_up,
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


def test_the_relation_of_steps_and_examples_holds() -> None:
    """(S / S_min - 1) (E / E_min - 1) = 1 at any batch; at B_crit both are twice their least."""
    found = fitted(*simulated(BATCHES, 3, 0.1, seed=1))
    least, critical = found.steps_min.value, found.batch.value
    assert least is not None and critical is not None
    for batch in (10.0, critical, 1e5):
        steps = law(batch, least, critical)
        product = (steps / least - 1) * (steps * batch / (least * critical) - 1)
        assert product == pytest.approx(1)
    assert law(critical, least, critical) == pytest.approx(2 * least)


@pytest.mark.parametrize("budget", [math.inf, 150.0])
def test_the_maximum_is_that_of_a_general_optimiser(budget: float) -> None:
    batch, steps = simulated(BATCHES, 3, 0.2, seed=2)
    found = fitted(batch, steps, budget)
    assert found.censored == (steps > budget).sum()

    def loss(x: np.ndarray) -> float:
        z = (np.log(np.minimum(steps, budget)) - x[0] - np.log1p(np.exp(x[1]) / batch)) / x[2]
        return -float(np.where(steps <= budget, stats.norm.logpdf(z) - np.log(x[2]),
                               stats.norm.logsf(z)).sum())  # fmt: skip

    start = [np.log(SMALLEST), np.log(CRITICAL), 0.2]
    best = optimize.minimize(loss, start, method="Nelder-Mead",
                             options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 5000})  # fmt: skip
    assert found.steps_min.value == pytest.approx(np.exp(best.x[0]), rel=1e-4)
    assert found.batch.value == pytest.approx(np.exp(best.x[1]), rel=1e-4)
    assert found.sd == pytest.approx(best.x[2], rel=1e-4)
    # the ends: where the best of the other two parameters is worse by the limit
    n = found.n
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


@pytest.mark.parametrize(("first", "last", "seeds"), [(0, 9, 1), (2, 6, 3), (0, 9, 5)])
def test_intervals_cover(first: int, last: int, seeds: int) -> None:
    held, count = np.zeros(2), 300
    for seed in range(count):
        found = fitted(*simulated(BATCHES[first:last], seeds, 0.08, seed))
        for i, (estimate, truth) in enumerate(
            ((found.batch, CRITICAL), (found.steps_min, SMALLEST))
        ):
            assert estimate.low is not None and estimate.high is not None
            held[i] += estimate.low <= truth <= estimate.high
    assert (held / count >= 0.92).all() and (held / count <= 0.985).all()


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


def test_censored_runs_count_as_more_than_their_budget() -> None:
    """Dropping the slow runs instead gives a law that is too good."""
    held, dropped, count = 0, [], 25
    for seed in range(count):
        batch, steps = simulated(BATCHES, 3, 0.2, seed)
        found = fitted(batch, steps, 150.0)
        low, high = found.batch.low, found.batch.high
        held += (low is None or low <= CRITICAL) and (high is None or high >= CRITICAL)
        there = steps <= 150.0
        dropped.append(fitted(batch[there], steps[there]).batch.value)
    assert held >= 0.9 * count
    assert np.median(dropped) < 0.85 * CRITICAL


def test_perfect_scaling_gives_a_lower_bound_and_flat_steps_an_upper_one() -> None:
    batch = np.repeat([64.0, 128.0, 256.0, 512.0], 3)
    noise = np.exp(np.random.default_rng(3).normal(0, 0.03, len(batch)))
    scaling = fitted(batch, 1e6 / batch * noise)
    assert scaling.batch.high is None
    assert scaling.batch.low is not None and scaling.batch.low > 512
    assert "lower bound" in str(scaling.batch.note)
    assert scaling.batch.text(lambda value: f"{value:.0f}").startswith("> ")
    flat = fitted(batch, 100 * noise)
    assert flat.batch.low is None
    assert flat.batch.high is not None and flat.batch.high < 64


def test_too_few_batches_are_refused() -> None:
    found = fit_critical_batch([64, 64, 128, 256], [90, 95, 50, 30], [True, True, True, False])
    assert isinstance(found, Refusal)
    assert found.reason.startswith("2 batch sizes")
    assert isinstance(fit_critical_batch([], [], []), Refusal)
    with pytest.raises(ValueError, match="0 or less"):
        fit_critical_batch([0, 1, 2], [1, 1, 1], [True] * 3)


def test_speed_up_is_the_product_of_both_efficiencies() -> None:
    found = speed_up([760, 760.0], [100, 100.0], [4e6, 4e6], [1e6, 1e6])
    assert not isinstance(found, Refusal)
    assert found.hardware.value == pytest.approx(7.6)
    assert found.statistical.value == pytest.approx(0.25)
    assert found.total.value == pytest.approx(1.9)
    assert found.total.low is None and "no variance" in str(found.total.note)


def test_speed_up_of_two_arms_is_welch_of_logs() -> None:
    random = np.random.default_rng(4)
    rate, base = random.lognormal(2, 0.1, 5), random.lognormal(0, 0.05, 4)
    found = speed_up(rate, base, [1e6] * 5, [1e6] * 4)
    assert not isinstance(found, Refusal)
    test = stats.ttest_ind(np.log(rate), np.log(base), equal_var=False)
    ends = np.exp(test.confidence_interval(0.95))
    assert (found.hardware.low, found.hardware.high) == pytest.approx(tuple(ends))
    # examples without variance add none
    assert (found.total.low, found.total.high) == pytest.approx(tuple(ends))


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("shared", [0.0, 0.2, -0.2])
def test_speed_up_covers(n: int, shared: float) -> None:
    """Throughput and images are of the same runs: what moves one may move the other."""
    random, held, count = np.random.default_rng(n), 0, 1000
    for _ in range(count):
        arms = [random.normal(m, s, n) for m, s in ((2, 0.02), (0, 0.01), (1, 0.2), (0, 0.1))]
        for rates, images in ((0, 3), (1, 2)):
            both = random.normal(0, 1, n)
            arms[rates] += 0.2 * both
            arms[images] += shared * both
        # images on the baseline and on these ranks: the product is exp(2 - 0 + 1 - 0)
        found = speed_up(*map(np.exp, (arms[0], arms[1], arms[3], arms[2])))
        assert not isinstance(found, Refusal)
        assert found.total.low is not None and found.total.high is not None
        held += found.total.low <= math.exp(3) <= found.total.high
    assert 0.93 <= held / count <= 0.985


def test_speed_up_refuses_a_mean_of_survivors() -> None:
    found = speed_up([1.0, 1], [1.0, 1], [5.0, None], [5.0, 5.0])
    assert isinstance(found, Refusal) and found.reason.startswith("1 run never")
    one = speed_up([2.0], [1.0, 1.1], [5.0], [5.0, 5.0])
    assert not isinstance(one, Refusal)
    assert one.total.low is None and str(one.total.note).startswith("n=1")
