"""How many steps one call takes."""

from __future__ import annotations

import pytest

from train.config.plan import EpochPlan

pytestmark = pytest.mark.tf


def sampled(per_pass: int, steps: int) -> list[int]:
    """Numbers of the first eight epochs that have a sampled step."""
    from train.trainer.stepper import sampled_step

    plans = [EpochPlan(n, 1, 8, steps, n * steps, 1.0, per_pass) for n in range(8)]
    return [plan.number for plan in plans if sampled_step(plan) is not None]


def test_one_step_of_a_pass_is_sampled_however_many_epochs_it_has() -> None:
    assert sampled(1, 5) == list(range(8))
    assert sampled(1, 1) == [1, 3, 5, 7]
    assert sampled(4, 1) == sampled(4, 5) == [3, 7]


def test_a_call_lasts_a_quarter_of_a_second_whatever_its_steps_take() -> None:
    from train.trainer.stepper import steps_per_call

    assert [steps_per_call(s) for s in (None, 0.011, 3.0, 0.0, 0.1)] == [1, 22, 1, 64, 2]
