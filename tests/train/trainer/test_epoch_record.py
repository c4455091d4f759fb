"""What the steps of an epoch add up to, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.builders import config

pytestmark = pytest.mark.tf


def step(**changes: Any) -> Any:
    from train.step.result import StepResult

    values = {
        "loss": 2.0, "correct": 3, "images": 4, "gradient_sq": 4.0, "small_sq": 6.0, "own_sq": 5.0,
        "skipped": False, "rate": 0.1, "gain": 1.0, "parts": None,
    }  # fmt: skip
    return StepResult(**(values | changes))


def sums(*steps: Any) -> list[float]:
    from train.trainer.epoch_record import epoch_sums

    return epoch_sums(steps).tolist()


def record(*steps: Any, batch: int = 4, trust: Any = None, **more: Any) -> Any:
    """Of an epoch with these steps, usually of one rank, broken off before its validation."""
    from train.config.plan import EpochPlan
    from train.trainer.epoch_record import epoch_record, epoch_sums

    plan = EpochPlan(0, 1, batch, len(steps), 0, 1.0)
    return epoch_record(
        config(batch_per_rank=4, **more), plan, steps, epoch_sums(steps), None, trust,
        attempt=1, train_s=1.0, eval_s=0.0,
    )  # fmt: skip


def test_sums_weigh_by_images() -> None:
    assert sums(step(), step(loss=1.0, correct=1, images=2)) == [2.0 * 4 + 1.0 * 2, 6, 4, 6]


def test_a_loss_that_overflowed_counts_where_the_step_was_not_skipped() -> None:
    """A forward pass in half precision: the run goes on, and its epoch has a loss."""
    over = step(loss=math.inf, skipped=True, gradient_sq=math.nan)
    assert sums(step(), over) == [8.0, 4, 6, 8]
    assert sums(over) == [0.0, 0, 3, 4] and record(over).train_loss is None
    small = step(loss=1.0, skipped=True, gradient_sq=math.inf)  # in the backward pass only
    assert sums(step(), small) == [12.0, 8, 6, 8]
    broken = step(loss=math.inf, gradient_sq=math.nan)
    assert not math.isfinite(sums(step(), broken)[0])


def test_rates_and_norms_are_of_the_steps_that_were_applied() -> None:
    over = step(rate=9.0, skipped=True, gradient_sq=math.inf)
    found = record(
        over, step(rate=0.1, gradient_sq=16.0), step(rate=0.3), step(rate=0.2), over
    )  # fmt: skip
    assert (found.lr_first, found.lr_last, found.lr_mean) == (0.1, 0.2, pytest.approx(0.2))
    assert found.gradient_norm == pytest.approx(8 / 3) and found.skipped_steps == 2
    assert (found.train_loss, found.images, found.eval_s) == (2.0, 20, 0.0)
    none = record(over)
    assert (none.lr_first, none.lr_last, none.lr_mean) == (9.0, 9.0, 9.0)
    assert none.gradient_norm is None


def test_what_ends_a_run() -> None:
    from train.config.plan import EpochPlan
    from train.trainer.divergence import MOST_SKIPPED, fatal

    plan = EpochPlan(1, 1, 4, 10, 10, 1.0)
    over, broken = step(skipped=True, gradient_sq=math.inf), step(gradient_sq=math.nan)
    assert fatal(plan, 3, step(), 0) is None
    assert fatal(plan, 3, over, MOST_SKIPPED) is None
    assert "in a row, up to step 3 of epoch 2" in fatal(plan, 3, over, MOST_SKIPPED + 1).what
    error = fatal(plan, 3, broken, 0)
    assert "not finite at step 3 of epoch 2" in error.what and error.where == "epoch 2"


def test_trust_is_over_all_steps_and_variables() -> None:
    of_steps = np.float32([[[0.1, 0.2], [0.0, 1.0]], [[0.3, 0.9], [0.0, 0.0]]])
    found = record(step(), step(), trust=of_steps).trust
    assert (found.smallest, found.largest) == (pytest.approx(0.1), pytest.approx(0.9))
    assert found.median == pytest.approx(0.25) and found.clipped_share == 0.25
    assert found.layers == (0.2, 0.55), "a median for each variable"
    assert record(step()).trust is None


def test_trust_leaves_out_what_is_no_number() -> None:
    """In the last step before weights overflow: the run has diverged, and its record says so."""
    fine, over = np.float32([[[0.1, 0.2], [0, 0]], [[0.1, math.inf], [0, 0]]])
    found = record(step(), step(), trust=np.stack([fine, over])).trust
    assert found.largest == pytest.approx(0.2)
    assert record(step(), trust=over[np.newaxis]).trust is None


def test_one_batch_a_step_and_equal_ones_have_no_noise_scale() -> None:
    assert record(step()).noise is None and record(step(), batch=8).noise is not None
    assert record(step(), batch=8, gpus=2, partition="same").noise is None


def alarm(ranks: int, accumulation: int, small_sq: float, own_sq: float, **more: Any) -> Any:
    """Of five steps whose gradient has a squared norm of 4."""
    from train.config.plan import EpochPlan
    from train.trainer.epoch_record import alarm_of

    asked = config(gpus=ranks, batch_per_rank=4, accumulation=accumulation, **more)
    plan = EpochPlan(0, accumulation, 4 * ranks * accumulation, 5, 0, 1.0)
    return alarm_of(asked, plan, [step(small_sq=small_sq, own_sq=own_sq)] * 5)


def test_equal_gradients_are_an_alarm_of_batches_or_of_ranks() -> None:
    assert alarm(2, 2, 4.0, 4.0) and alarm(2, 1, 4.0, 4.0)
    assert alarm(2, 2, 9.0, 4.0), "of ranks, whose own batches differ"
    assert alarm(2, 2, 9.0, 6.0) is None
    assert alarm(1, 4, 9.0, 4.0) is None, "one rank's own gradient is the step's"
    assert alarm(1, 1, 4.0, 4.0) is None


def test_ranks_that_are_to_draw_the_same_images_are_no_alarm() -> None:
    for partition in ("partition", "independent", "whole"):
        assert alarm(2, 1, 4.0, 4.0, partition=partition)
    assert alarm(2, 1, 4.0, 4.0, partition="same") is None
