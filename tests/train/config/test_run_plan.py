"""The plan of a run: its rates, batches and steps, against values computed by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config, row
from tests.invariants import Invariant
from train.config.optimizer import Sgd
from train.config.plan import RunPlan, plan_of
from train.config.schedule import Constant, Cosine, Grow, Polynomial, StepDecay
from train.errors import ConfigError

CELL = ("gpus", "batch_per_rank", "accumulation", "epochs", "data_fraction")


def planned(images: int, **changes: Any) -> RunPlan:
    """A run on ``images`` training images; base rate 0.1 for a base batch of 100."""
    cell = {key: changes.pop(key) for key in CELL if key in changes}
    technique = row(**({"base_lr": 0.1, "base_batch": 100} | changes))
    return plan_of(config(technique=technique, **({"epochs": 12} | cell)), images)


def rates(plan: RunPlan) -> list[float]:
    return [plan.rate(step) for step in range(plan.total_steps)]


def as_ranks(batch: int) -> list[dict[str, int]]:
    """One batch in three ways: one rank, eight ranks, two ranks that add up four batches."""
    return [
        {"gpus": 1, "batch_per_rank": batch},
        {"gpus": 8, "batch_per_rank": batch // 8},
        {"gpus": 2, "batch_per_rank": batch // 8, "accumulation": 4},
    ]


# --- T1, T2: scaling rules -----------------------------------------------------------------------


def test_linear_rule(invariant: Invariant) -> None:
    name, k = "T1 linear scaling", 8
    small = {"base_lr": 0.125, "base_batch": 64, "lr_scaling": "linear", "batch_per_rank": 64}
    little = rates(planned(64 * k, epochs=1, **small))
    (large,) = rates(planned(64 * k, epochs=1, **{**small, "batch_per_rank": 64 * k}))
    # rates and gradients are multiples of powers of two: no rounding anywhere
    gradient, weight = 3.0, 1.0
    after = weight
    for rate in little:
        after -= rate * gradient
    error = abs(after - (weight - large * gradient))
    invariant(name, "constant gradient: k steps at lr are one step at k lr", error, 0.0)

    def difference(base: float, curvature: float) -> float:
        peaks = {**small, "base_lr": base}
        steps = rates(planned(64 * k, epochs=1, **peaks))
        (one,) = rates(planned(64 * k, epochs=1, **{**peaks, "batch_per_rank": 64 * k}))
        slow = math.prod(1 - rate * curvature for rate in steps)
        return abs(slow - (1 - one * curvature))

    ratio = difference(1e-3, 0.5) / difference(5e-4, 0.5)
    invariant(name, "quadratic: half the rate, a quarter of the difference", abs(ratio - 4), 0.02)
    ways = [planned(8192, lr_scaling="linear", **way).rate(0) for way in as_ranks(800)]
    spread = max(abs(rate - 0.8) for rate in ways)
    invariant(name, "one rate however ranks and accumulation make up the batch", spread, 1e-15)


def test_square_root_rule(invariant: Invariant) -> None:
    """The covariance of a step, lr^2/M C, of synthetic gradients of single images."""
    rng = np.random.default_rng(0)
    mixing = np.array([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.0, -1.0, 0.3]])

    def squared_steps(batch: int, rule: str) -> np.ndarray:
        rate = planned(10_000, base_batch=16, lr_scaling=rule, batch_per_rank=batch).rate(0)
        gradients = rng.standard_normal((4000, batch, 3)) @ mixing.T
        return np.square(rate * gradients.mean(axis=1)).sum(axis=1)

    def standard_errors(one: np.ndarray, other: np.ndarray, factor: float) -> float:
        se = math.sqrt((factor**2 * one.var() + other.var()) / len(one))
        return abs(other.mean() - factor * one.mean()) / se

    base = squared_steps(16, "sqrt")
    root = standard_errors(base, squared_steps(64, "sqrt"), 1.0)
    linear = standard_errors(base, squared_steps(64, "linear"), 4.0)
    name = "T2 square root scaling"
    invariant(name, "covariance of the step at 4 times the batch, standard errors from 1x", root, 3)
    invariant(name, "the linear rule makes it 4 times as large, standard errors", linear, 3)


# --- T3: warm-up ---------------------------------------------------------------------------------


def test_warmup(invariant: Invariant) -> None:
    name, size, steps = "T3 warm-up", 8, 10
    scaled = {"lr_scaling": "linear", "warmup_epochs": 3, "gpus": size, "batch_per_rank": 100}
    plan = planned(size * 100 * steps, **scaled)
    found = rates(plan)
    # Horovod's callback, _keras/callbacks.py, from the scaled rate and fractional epochs
    climb = [0.8 / size * ((s + 1) / steps * (size - 1) / 3 + 1) for s in range(3 * steps)]
    off = max(abs(a - b) for a, b in zip(found, climb, strict=False))
    invariant(name, "every step of the climb is that of the published formula", off, 1e-15)
    exact = {0: 0.1 + 0.7 / 30, 14: 0.45, 29: 0.8, 30: 0.8, 119: 0.8}
    off = max(abs(found[step] - value) for step, value in exact.items())
    invariant(name, "first, middle and last step, first after: exact", off, 1e-15)
    jumps = [b - a for a, b in pairwise(found)]
    off = max(abs(jump - 0.7 / 30) for jump in jumps[:29])
    invariant(name, "equal increments, the last one arrives", max(off, *jumps[29:]), 1e-15)
    ways = [rates(planned(8000, **{**scaled, **way})) for way in as_ranks(800)]
    off = max(abs(a - b) for way in ways for a, b in zip(way, found, strict=True))
    invariant(name, "the climb depends on the batch, not on the number of ranks", off, 0.0)


def test_warmup_from_zero_and_where_there_is_nothing_to_climb() -> None:
    zero = planned(1000, warmup_epochs=2, warmup_from="zero", batch_per_rank=100)
    assert rates(zero)[:20] == pytest.approx([0.1 * (s + 1) / 20 for s in range(20)])
    base = planned(1000, lr_scaling="linear", warmup_epochs=3, batch_per_rank=100)
    assert rates(base) == [0.1] * 120
    small = planned(1000, lr_scaling="linear", warmup_epochs=3, batch_per_rank=50)
    assert rates(small) == [0.05] * 240
    half = planned(1100, lr_scaling="linear", warmup_epochs=0.5, batch_per_rank=200)
    assert half.warmup_steps == 2  # of 5 steps, to the nearest even


# --- T4: schedules -------------------------------------------------------------------------------


def test_schedules_at_exact_points(invariant: Invariant) -> None:
    name = "T4 schedules"
    ten = {"batch_per_rank": 100, "epochs": 10}
    points = {
        Cosine(): [(0, 0.1), (50, 0.05), (99, 0.05 * (1 + math.cos(math.pi * 0.99))), (100, 0.0)],
        Cosine(final=0.2): [(0, 0.1), (50, 0.06), (100, 0.02)],
        Polynomial(): [(0, 0.1), (50, 0.05), (99, 0.001), (100, 0.0)],
        Polynomial(power=2, final=0.1): [(0, 0.1), (50, 0.01 + 0.09 / 4), (100, 0.01)],
        StepDecay(milestones=(0.5,)): [(49, 0.1), (50, 0.01)],
        StepDecay(milestones=(3, 7), unit="epochs", factor=0.5): [
            (29, 0.1), (30, 0.05), (69, 0.05), (70, 0.025), (99, 0.025),
        ],
    }  # fmt: skip
    for schedule, pairs in points.items():
        plan = planned(1000, schedule=schedule, **ten)
        off = max(abs(plan.rate(step) - value) for step, value in pairs)
        invariant(name, f"{schedule.name}: exact at both ends and between", off, 1e-16)


def test_the_course_milestones_on_both_sides(invariant: Invariant) -> None:
    found = rates(planned(500, schedule=StepDecay(), epochs=40, batch_per_rank=100))
    course = [0.1 * 0.1 ** sum(step // 5 >= epoch for epoch in (15, 25, 35)) for step in range(200)]
    off = max(abs(a - b) for a, b in zip(found, course, strict=True))
    invariant("T4 schedules", "step: the course's rates at 15, 25, 35 of 40 epochs", off, 1e-16)
    short = rates(planned(500, schedule=StepDecay(), epochs=12, batch_per_rank=100))
    assert len(set(short)) == 4  # they fire in a run of 12 epochs, too


def test_cycles_start_after_the_warmup_and_accumulation_changes_nothing() -> None:
    cycle = {"schedule": Cosine(), "lr_scaling": "linear", "warmup_epochs": 2}
    plans = [planned(8000, **cycle, **way) for way in as_ranks(800)]
    assert [plan.total_steps for plan in plans] == [120] * 3
    assert rates(plans[0]) == rates(plans[1]) == rates(plans[2])
    assert plans[0].rate(19) == plans[0].rate(20) == pytest.approx(0.8)
    assert plans[0].rate(70) == pytest.approx(0.4)
    assert plans[0].rate(20) > plans[0].rate(21)


# --- T11: regime adaptation ----------------------------------------------------------------------


@pytest.mark.parametrize(("images", "large"), [(50_000, 4096), (51_200, 4096), (1437, 700)])
def test_regime_adaptation(invariant: Invariant, images: int, large: int) -> None:
    name = "T11 regime adaptation"
    base = images // 97
    each = images // base  # steps an epoch: 97 or a few more; the large batch divides neither
    same = {
        "base_batch": base, "schedule": StepDecay(), "lr_scaling": "sqrt", "warmup_epochs": 2,
        "regime_adaptation": True,
    }  # fmt: skip
    small = planned(images, batch_per_rank=base, **same)
    adapted = planned(images, batch_per_rank=large, **same)
    assert (small.total_steps, len(small.epochs)) == (each * 12, 12)
    steps = abs(adapted.total_steps - small.total_steps)
    invariant(name, "as many updates as the base batch", steps, 0)
    scale = math.sqrt(large / base)

    def drops(plan: RunPlan) -> list[int]:
        found = rates(plan)
        return [s for s in range(1, len(found)) if found[s] < 0.5 * found[s - 1]]

    assert len(drops(small)) == 3
    moved = max(abs(a - b) for a, b in zip(drops(small), drops(adapted), strict=True))
    invariant(name, "milestones on the same update", moved, 0)
    after = small.warmup_steps
    assert after == adapted.warmup_steps == 2 * each
    pairs = list(zip(rates(small)[after:], rates(adapted)[after:], strict=True))
    error = max(abs(b / (a * scale) - 1) for a, b in pairs)
    invariant(name, "the base batch's rates times sqrt(B/B0)", error, 1e-12)
    assert all(e.steps == images // large for e in adapted.epochs[:-1])
    assert 0 < adapted.epochs[-1].steps <= images // large


def test_regime_adaptation_without_end_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"more than 100,000 epochs .* larger base_batch"):
        _ = planned(
            10_000, batch_per_rank=10_000, epochs=100, base_batch=1, regime_adaptation=True
        ).epochs


def test_epochs_of_a_schedule_are_the_base_batch_s_where_the_regime_is_adapted() -> None:
    same = {"regime_adaptation": True, "schedule": StepDecay(milestones=(3, 7), unit="epochs")}
    small = planned(1000, batch_per_rank=100, **same)
    adapted = planned(1000, batch_per_rank=500, **same)
    assert (len(small.epochs), len(adapted.epochs)) == (12, 60)
    assert rates(small) == rates(adapted)
    with pytest.raises(ConfigError, match=r"base_batch 2,000 is more than the 1,000 training"):
        planned(1000, batch_per_rank=500, base_batch=2000, **same)


# --- T12: growing the batch ----------------------------------------------------------------------


def noise(plan: RunPlan, epoch: int, momentum: float = 0.9) -> float:
    """nu = lr (N/B - 1) / (1 - m), Smith et al. 2018 (1711.00489), section 2."""
    entry = plan.epochs[epoch]
    return plan.rate(entry.first_step) * (plan.used / entry.global_batch - 1) / (1 - momentum)


def test_growing_the_batch(invariant: Invariant) -> None:
    name, images = "T12 growing batch", 50_000
    run = {"batch_per_rank": 64, "gpus": 2, "epochs": 40}
    decays = planned(images, schedule=StepDecay(factor=0.2), **run)
    grows = planned(images, batch_growth=Grow(factor=5), **run)
    assert [grows.epochs[e].global_batch for e in (14, 15, 25, 35)] == [128, 640, 3200, 3200]
    assert [grows.epochs[e].accumulation for e in (14, 15, 25, 35)] == [1, 5, 25, 25]
    assert [noise(decays, e) for e in (0, 20)] == pytest.approx([389.6, 77.9], abs=0.05)
    assert noise(grows, 20) == pytest.approx(77.1, abs=0.05)
    pairs = list(zip(decays.epochs, grows.epochs, strict=True))
    level = max(
        abs(
            grows.rate(g.first_step) / g.global_batch * d.global_batch / decays.rate(d.first_step)
            - 1
        )
        for d, g in pairs
    )
    invariant(name, "lr N / B is that of the decaying rate at every epoch", level, 1e-12)
    off = max(
        abs(noise(grows, g.number) / noise(decays, g.number) - 1) * images / g.global_batch
        for _, g in pairs
    )
    invariant(name, "lr (N/B - 1) / (1 - m) differs by less than B/N of it", off, 1.0)
    invariant(name, "as many epochs", abs(len(grows.epochs) - len(decays.epochs)), 0)
    assert grows.total_steps < 0.5 * decays.total_steps
    # it ends at a tenth of the data: the third milestone divides the rate
    assert [grows.rate(grows.epochs[e].first_step) for e in (0, 34, 35)] == pytest.approx(
        [0.1, 0.1, 0.02]
    )


def test_growth_keeps_the_rate_of_the_first_batch_and_whole_steps() -> None:
    grow = Grow(milestones=(0.5,), factor=4)
    plan = planned(5000, batch_growth=grow, lr_scaling="linear", batch_per_rank=110, epochs=4)
    assert [e.steps for e in plan.epochs] == [45, 45, 11, 11]
    assert [e.first_step for e in plan.epochs] == [0, 45, 90, 101]
    assert plan.total_steps == 112
    assert set(rates(plan)) == {plan.config.technique.peak_lr(110)}
    assert [plan.epoch_of(s).number for s in (0, 44, 45, 89, 90, 111)] == [0, 0, 1, 1, 2, 3]


def test_growth_begins_with_the_nearest_epoch() -> None:
    assert Grow().epochs(40) == (15, 25, 35)
    assert Grow().epochs(12) == (5, 8, 11)  # 4.5, 7.5 and 10.5: half counts up, all alike


@pytest.mark.parametrize(
    ("growth", "words"),
    [
        (Grow(largest=6000), "largest 6,000 is more than the 5,000 .* at most 500, a tenth"),
        (Grow(), r"from 110 to 550, passes the largest batch 500 \(a tenth .* never grow"),
        (Grow(largest=400), "from 110 to 550, passes the largest batch 400, so .* smaller batch"),
    ],
)
def test_growth_that_the_data_does_not_allow(growth: Grow, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        planned(5000, batch_growth=growth, batch_per_rank=110)


# --- T16: AdaScale's clock, and all plans --------------------------------------------------------


def test_adascale_reads_the_schedule_in_steps_of_the_base_batch(invariant: Invariant) -> None:
    ranks = {"gpus": 8, "batch_per_rank": 100}
    plan = planned(8000, lr_scaling="adascale", optimizer=Sgd(), schedule=Cosine(), **ranks)
    alone = planned(8000, schedule=Cosine(), batch_per_rank=100)
    assert (plan.total_steps, plan.base_steps, alone.total_steps) == (120, 960, 960)
    off = max(abs(plan.rate(step) - alone.rate(step)) for step in range(960))
    invariant("T16 AdaScale", "the schedule is the base batch's, on a clock of gains", off, 0.0)
    assert plan.rate(1e6) == 0.0  # it stays at its end


def test_no_step_is_refused_with_what_would_do() -> None:
    with pytest.raises(ConfigError, match=r"800 x 1, is more .* 718\), .* at most 718"):
        planned(1437, gpus=2, batch_per_rank=800)
    with pytest.raises(ConfigError, match=r"200 x 4, is more .* at most 718"):
        planned(1437, gpus=2, batch_per_rank=200, accumulation=4)
    with pytest.raises(ConfigError, match=r"3 training images / 4 ranks .* steps: use fewer"):
        planned(3, gpus=4, batch_per_rank=1)
    assert planned(1437, gpus=2, batch_per_rank=64, data_fraction=0.5).epochs[0].steps == 5


@given(
    batch=st.integers(1, 500), images=st.integers(500, 2000), epochs=st.integers(1, 8),
    warmup=st.floats(0, 1), rule=st.sampled_from(["none", "linear", "sqrt"]),
    schedule=st.sampled_from([Constant(), StepDecay(), Cosine(), Polynomial(power=2)]),
    start=st.sampled_from(["base", "zero"]), adapted=st.booleans(),
)  # fmt: skip
def test_rates_are_positive_and_never_above_the_peak(
    batch: int, images: int, epochs: int, warmup: float, rule: str, schedule: Any, start: str,
    adapted: bool,
) -> None:  # fmt: skip
    # where a schedule follows, the climb ends before the first milestone
    climb = warmup * epochs * (1 if isinstance(schedule, Constant) else 0.3)
    steps = images // (100 if adapted else batch)
    if climb * steps < 1:
        climb = 0  # less than a step is refused
    if epochs * steps < 8 and isinstance(schedule, StepDecay):
        schedule = Constant()  # so are milestones that come to one step
    plan = planned(
        images, batch_per_rank=batch, epochs=epochs, lr_scaling=rule, schedule=schedule,
        warmup_epochs=climb, regime_adaptation=adapted,
        warmup_from="zero" if rule == "none" else start,
    )  # fmt: skip
    peak = plan.config.technique.peak_lr(batch)
    for step in range(0, plan.total_steps, max(1, plan.total_steps // 50)):
        assert 0 < plan.rate(step) <= peak * (1 + 1e-12)
        entry = plan.epoch_of(step)
        assert entry.first_step <= step < entry.first_step + entry.steps
    assert plan.total_steps == sum(entry.steps for entry in plan.epochs)
    assert all(a.first_step + a.steps == b.first_step for a, b in pairwise(plan.epochs))
