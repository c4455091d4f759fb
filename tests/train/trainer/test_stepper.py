"""How many steps one call takes."""

from __future__ import annotations

import pytest

from train.config.plan import EpochPlan
from train.trainer.step_summaries import StepRow

pytestmark = pytest.mark.tf


def step(call_s: float, *, sampled: bool = False, suspended: bool = False) -> StepRow:
    return StepRow(
        0, 0.0, call_s, 0.0 if sampled else None, update_s=None, rate=0.1, global_batch=8, loss=1.0,
        gradient_sq=2.0, small_sq=3.0, gain=1.0, skipped=False, suspended=suspended,
    )  # fmt: skip


def sampled(per_pass: int | None, steps: int) -> list[int]:
    """Numbers of the first eight epochs that have a sampled step."""
    from train.trainer.stepper import sampled_step

    plans = [EpochPlan(n, 1, 8, steps, n * steps, 1.0, per_pass) for n in range(8)]
    return [plan.number for plan in plans if sampled_step(plan) is not None]


def test_one_step_of_a_pass_is_sampled_however_many_epochs_it_has() -> None:
    assert sampled(None, 5) == list(range(8))
    assert sampled(1, 5) == list(range(8))
    assert sampled(None, 1) == sampled(1, 1) == [1, 3, 5, 7]
    assert sampled(4, 1) == sampled(4, 5) == [3, 7]


def test_a_call_lasts_a_quarter_of_a_second_whatever_its_steps_take() -> None:
    from train.trainer.stepper import steps_per_call

    assert steps_per_call([]) == steps_per_call([step(0.01, sampled=True)]) == 1
    assert steps_per_call([step(0.01), step(0.011), step(0.2)]) == 22
    assert steps_per_call([step(3.0)]) == 1 and steps_per_call([step(0.0)]) == 64
    assert steps_per_call([step(60.0, suspended=True), step(0.1)]) == 2
