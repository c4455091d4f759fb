"""The learning rate per step, against values computed by hand."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.schedule import learning_rate
from train.technique import Constant, Cosine, Step, Technique


def technique(**changes: object) -> Technique:
    return Technique(**({"name": "t", "base_lr": 0.1, "base_batch": 100} | changes))


@pytest.mark.parametrize(
    ("rule", "expected"), [("none", 0.1), ("linear", 0.8), ("sqrt", 0.1 * math.sqrt(8))]
)
def test_rules_scale_against_the_base_batch(rule: str, expected: float) -> None:
    assert technique(lr_scaling=rule).peak_lr(800) == pytest.approx(expected, rel=1e-15)


def test_warmup_climbs_by_equal_increments_and_meets_the_peak() -> None:
    t = technique(lr_scaling="linear", warmup_epochs=3)
    rates = [learning_rate(t, 800, step, 10, 12) for step in range(120)]
    increments = [b - a for a, b in pairwise(rates[:30])]
    assert rates[29] == pytest.approx(0.8)  # the last step of the warm-up
    assert rates[30] == pytest.approx(0.8)  # the first after it
    assert rates[0] == pytest.approx(0.1 + 0.7 / 30)
    assert increments == pytest.approx([0.7 / 30] * 29)
    assert max(b - a for a, b in pairwise(rates)) <= 0.7 / 30 + 1e-12


def test_warmup_depends_on_the_batch_alone() -> None:
    """Nothing to climb at the base batch; the rank count does not enter at all."""
    t = technique(lr_scaling="linear", warmup_epochs=3)
    assert [learning_rate(t, 100, step, 10, 12) for step in range(120)] == [0.1] * 120


def test_step_schedule_on_both_sides_of_each_milestone() -> None:
    t = technique(schedule=Step())
    rates = [learning_rate(t, 100, step, 5, 40) for step in range(200)]
    assert rates[74] == pytest.approx(0.1) and rates[75] == pytest.approx(0.01)  # epoch 15 of 40
    assert rates[124] == pytest.approx(0.01) and rates[125] == pytest.approx(0.001)
    assert rates[174] == pytest.approx(0.001) and rates[175] == pytest.approx(0.0001)
    short = [learning_rate(t, 100, step, 10, 12) for step in range(120)]
    assert len(set(short)) == 4  # the milestones fire in a run of 12 epochs, too


def test_cosine_at_start_middle_and_end() -> None:
    t = technique(schedule=Cosine())
    assert learning_rate(t, 100, 0, 10, 10) == pytest.approx(0.1)
    assert learning_rate(t, 100, 50, 10, 10) == pytest.approx(0.05)
    assert learning_rate(t, 100, 99, 10, 10) == pytest.approx(
        0.1 * (1 + math.cos(math.pi * 0.99)) / 2
    )


@given(
    batch=st.integers(1, 100_000), steps=st.integers(1, 50), epochs=st.integers(1, 20),
    warmup=st.floats(0, 5), rule=st.sampled_from(["none", "linear", "sqrt"]),
    schedule=st.sampled_from([Constant(), Step(), Cosine()]),
)  # fmt: skip
def test_rates_are_positive_and_never_above_the_peak(
    batch: int, steps: int, epochs: int, warmup: float, rule: str, schedule: object
) -> None:
    t = technique(lr_scaling=rule, warmup_epochs=min(warmup, epochs), schedule=schedule)
    peak = t.peak_lr(batch)
    for step in range(steps * epochs):
        rate = learning_rate(t, batch, step, steps, epochs)
        assert 0 < rate <= max(peak, t.base_lr) * (1 + 1e-12)
