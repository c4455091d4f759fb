"""What the steps of an epoch add up to, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.builders import config
from train.config.technique import Technique

pytestmark = pytest.mark.tf  # train.step.train_step loads it


def step(**changes: Any) -> Any:
    from train.step.result import StepResult

    values = {
        "loss": 2.0, "correct": 3, "images": 4, "gradient_sq": 4.0, "small_sq": 6.0, "own_sq": 5.0,
        "skipped": False, "rate": 0.1, "gain": 1.0, "trust": None, "parts": None,
    }  # fmt: skip
    return StepResult(**(values | changes))


def tally(*steps: Any) -> Any:
    from train.trainer.epoch import EpochAccumulator

    return EpochAccumulator(list(steps))


def test_sums_weigh_by_images() -> None:
    found = tally(step(), step(loss=1.0, correct=1, images=2)).sums()
    assert found.tolist() == [2.0 * 4 + 1.0 * 2, 6, 4, 6]


def test_a_loss_that_overflowed_counts_where_the_step_was_not_skipped() -> None:
    """A forward pass in half precision: the run goes on, and its epoch has a loss."""
    over = step(loss=math.inf, skipped=True, gradient_sq=math.nan)
    assert tally(step(), over).sums().tolist() == [8.0, 4, 6, 8]
    assert tally(over).sums().tolist() == [0.0, 0, 3, 4]
    small = step(loss=1.0, skipped=True, gradient_sq=math.inf)  # in the backward pass only
    assert tally(step(), small).sums().tolist() == [12.0, 8, 6, 8]
    broken = step(loss=math.inf, gradient_sq=math.nan)
    assert not math.isfinite(tally(step(), broken).sums()[0])


def test_an_epoch_whose_steps_were_all_skipped_has_no_loss() -> None:
    from train.config.plan import EpochPlan
    from train.trainer.epoch import Measured, epoch_record

    over = step(loss=math.inf, skipped=True, gradient_sq=math.nan)
    for steps, loss in (((over, over), None), ((over, step()), 2.0)):
        tallied = tally(*steps)
        measured = Measured(1, tallied.sums(), None, 1.0, 0.1, suspended_s=63.0)
        given = config(gpus=1, batch_per_rank=4)
        found = epoch_record(given, EpochPlan(0, 1, 4, 2, 0, 1.0), tallied, measured, labelled=True)
        assert found.train_loss == loss and found.images == 8
        assert (found.train_s, found.eval_s, found.suspended_s) == (1.0, 0.0, 63.0)


def test_rates_are_those_applied() -> None:
    assert tally(step(rate=0.1), step(rate=0.3), step(rate=0.2)).rates() == (
        0.1, 0.2, pytest.approx(0.2)
    )  # fmt: skip
    over = step(rate=9.0, skipped=True, gradient_sq=math.inf)
    assert tally(over, step(rate=0.1), step(rate=0.3), over).rates() == (
        0.1, 0.3, pytest.approx(0.2)
    )  # fmt: skip
    assert tally(over).rates() == (9.0, 9.0, 9.0)


def test_norms_leave_out_what_is_no_number() -> None:
    assert tally(step(), step(gradient_sq=math.inf), step(gradient_sq=16.0)).gradient_norm() == 3.0
    assert tally(step(gradient_sq=math.nan)).gradient_norm() is None


def test_what_ends_a_run() -> None:
    from train.config.plan import EpochPlan
    from train.trainer.epoch import MOST_SKIPPED, fatal

    plan = EpochPlan(1, 1, 4, 10, 10, 1.0)
    over, broken = step(skipped=True, gradient_sq=math.inf), step(gradient_sq=math.nan)
    assert tally(over, step(), over, broken).skipped == 2
    assert fatal(plan, 3, step(), 0) is None
    assert fatal(plan, 3, over, MOST_SKIPPED) is None
    assert "in a row, up to step 3 of epoch 2" in fatal(plan, 3, over, MOST_SKIPPED + 1).what
    assert "not finite at step 3 of epoch 2" in fatal(plan, 3, broken, 0).what


def test_trust_is_over_all_steps_and_variables() -> None:
    first = (np.array([0.1, 0.2], np.float32), np.array([0.0, 1.0], np.float32))
    second = (np.array([0.3, 0.9], np.float32), np.array([0.0, 0.0], np.float32))
    found = tally(step(trust=first), step(trust=None), step(trust=second)).trust()
    assert (found.smallest, found.largest) == (pytest.approx(0.1), pytest.approx(0.9))
    assert found.median == pytest.approx(0.25) and found.clipped_share == 0.25
    assert found.layers == (0.2, 0.55), "a median for each variable"
    assert tally(step()).trust() is None


def test_trust_leaves_out_what_is_no_number() -> None:
    """In the last step before weights overflow: the run has diverged, and its record says so."""
    kept = np.zeros(2, np.float32)
    fine, over = np.array([0.1, 0.2], np.float32), np.array([0.1, math.inf], np.float32)
    found = tally(step(trust=(fine, kept)), step(trust=(over, kept))).trust()
    assert found.largest == pytest.approx(0.2)
    assert tally(step(trust=(over, kept))).trust() is None


def test_one_batch_a_step_has_no_noise_scale_and_no_alarm() -> None:
    assert tally(step()).noise(4, 4, 0) is None
    assert tally(step(small_sq=4.0, own_sq=4.0)).alarm(4, 4, 4, "none") is None


def test_equal_gradients_are_an_alarm_of_batches_or_of_ranks() -> None:
    same_batches = [step(small_sq=4.0, own_sq=4.0, gradient_sq=4.0)] * 5
    same_ranks = [step(small_sq=9.0, own_sq=4.0, gradient_sq=4.0)] * 5
    noisy = [step(small_sq=9.0, own_sq=6.0, gradient_sq=4.0)] * 5
    assert tally(*same_batches).alarm(4, 8, 16, "none")
    assert tally(*same_ranks).alarm(4, 8, 16, "none")  # whose own batches differ
    assert tally(*noisy).alarm(4, 8, 16, "none") is None
    assert tally(*same_ranks).alarm(4, 16, 16, "none") is None  # one rank has nobody to repeat


def test_a_rank_s_gradient_is_of_all_that_it_accumulates() -> None:
    """One rank's own gradient is the step's: equal by construction, no alarm."""
    from train.config.plan import EpochPlan
    from train.trainer.epoch import alarm_of

    same = tally(*[step(small_sq=9.0, own_sq=4.0, gradient_sq=4.0)] * 5)
    alone = config(gpus=1, batch_per_rank=4, accumulation=4)
    assert alarm_of(alone, EpochPlan(0, 4, 16, 5, 0, 1.0), same) is None
    pair = config(gpus=2, batch_per_rank=4, accumulation=2)
    assert alarm_of(pair, EpochPlan(0, 2, 16, 5, 0, 1.0), same)


def test_ranks_that_are_to_draw_the_same_images_are_no_alarm_and_have_no_noise() -> None:
    from train.config.plan import EpochPlan
    from train.trainer.epoch import alarm_of, measures_noise

    plan = EpochPlan(0, 1, 8, 5, 0, 1.0)
    equal = tally(*[step(small_sq=4.0, own_sq=4.0, gradient_sq=4.0)] * 5)
    for partition in ("partition", "independent", "whole"):
        assert alarm_of(config(gpus=2, batch_per_rank=4, partition=partition), plan, equal)
    asked = config(gpus=2, batch_per_rank=4, partition="same")
    assert alarm_of(asked, plan, equal) is None and not measures_noise(asked)
    assert measures_noise(config(gpus=1, partition="same"))


@pytest.mark.parametrize(
    ("technique", "measured"),
    [
        ({}, True),
        ({"noise_batch": 32}, False),
        ({"reduction": "adasum"}, False),
        ({"normalisation": "sync_batch_norm"}, False),
        ({"normalisation": "batch_norm", "compression": "fp16"}, True),
    ],
)
def test_noise_is_measured_where_the_two_norms_say_something(technique, measured) -> None:
    from train.trainer.epoch import measures_noise

    row = Technique(**({"name": "t", "base_lr": 0.1, "base_batch": 64} | technique))
    assert measures_noise(config(technique=row)) is measured
