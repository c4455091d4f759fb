"""How many steps one call takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import config
from tests.train.trainer.test_trainer import cell
from train.config.plan import EpochPlan

pytestmark = pytest.mark.tf


def sampled(per_pass: int, steps: int) -> list[int]:
    """Numbers of the first eight epochs that have a sampled step."""
    from train.trainer.epoch import sampled_step

    plans = [EpochPlan(n, 1, 8, steps, n * steps, 1.0, per_pass) for n in range(8)]
    return [plan.number for plan in plans if sampled_step(plan) is not None]


def test_one_step_of_a_pass_is_sampled_however_many_epochs_it_has() -> None:
    assert sampled(1, 5) == list(range(8))
    assert sampled(1, 1) == [1, 3, 5, 7]
    assert sampled(4, 1) == sampled(4, 5) == [3, 7]


def test_a_call_lasts_a_quarter_of_a_second_whatever_its_steps_take(tmp_path: Path) -> None:
    epochs, plan = cell(config(), tmp_path).loop, EpochPlan(0, 1, 8, 5, 0, 1.0)
    usual = [None, (9.0, 0.011), (9.0, 3.0), (9.0, 0.0), (9.0, 0.1)]
    assert [epochs._wanted_per_call(plan, of) for of in usual] == [1, 22, 1, 64, 2]


def test_the_sampled_step_is_a_call_of_its_own() -> None:
    from train.trainer.epoch import calls

    assert calls(10, 4, None) == [4, 4, 2] and calls(8, 4, None) == [4, 4]
    assert calls(10, 4, 5) == [4, 1, 1, 4] and calls(10, 64, 0) == [1, 9]
    assert calls(1, 1, 0) == [1] and calls(4, 3, 3) == [3, 1]
