"""The plan of a cell on its data, checked: a schedule that can be as it was asked for."""

from __future__ import annotations

import math

from train.config import DATASETS, ConfigError, RunConfig, trainable_images, used_train_images
from train.schedule import RunPlan
from train.schedule_config import Step


def plan_of(config: RunConfig, available: int) -> RunPlan:
    """The plan of a cell on a data set of ``available`` training images, checked.

    Raises:
        ConfigError: an epoch would have no step, the batch cannot grow as asked, or rounding to
            whole steps leaves of a warm-up, a milestone or a target nothing that can be done.
    """
    return checked_plan(config, trainable_images(config, available))


def checked_plan(config: RunConfig, trainable: int) -> RunPlan:
    """The same where the images to validate on are taken away already.

    Raises:
        ConfigError: as :func:`plan_of`.
    """
    plan = RunPlan(config, used_train_images(trainable, config.data_fraction))
    plan.rate(plan.total_steps - 1)  # computing all that a rate needs is the check
    if text := _problem(plan):
        raise ConfigError(f"cell {config.cell_id()}: {text}")
    return plan


def epochs_to_train(config: RunConfig, used: int | None = None) -> int | None:
    """Epochs of the run, also for those who have not seen its data.

    Regime adaptation turns steps into epochs, which takes the number of images (``used``, as of
    RunPlan). None where it is neither given nor published, or where the cell cannot run at all.
    """
    if not config.technique.regime_adaptation:
        return config.epochs
    facts = DATASETS.get(config.dataset)
    try:
        if used is not None:
            return len(RunPlan(config, used).epochs)
        return None if facts is None else len(plan_of(config, facts.train_images).epochs)
    except ConfigError:
        return None


def most_epochs(config: RunConfig) -> int:
    """No fewer than the run has, whatever its data: n images fill at least half of n/B batches."""
    bound = 2 * config.epochs * config.global_batch / config.technique.base_batch
    return epochs_to_train(config) or math.ceil(bound)


def _problem(plan: RunPlan) -> str | None:
    """What becomes of a request when it is rounded to the steps of a run, with what to do; None
    where nothing is wrong."""
    return _warmup(plan) or _milestones(plan) or _target(plan)


def _warmup(plan: RunPlan) -> str | None:
    epochs = plan.config.technique.warmup_epochs
    if not epochs or plan.warmup_steps:
        return None
    each = plan.step_at(1)
    return (
        f"warmup_epochs {epochs:g} of {each:,.0f} steps each come to 0 steps, so there would be no "
        f"warm-up: set warmup_epochs to 0, or to {math.ceil(1000 / each) / 1000:g} (one step) or "
        "more"
    )


def _milestones(plan: RunPlan) -> str | None:
    schedule, last = plan.config.technique.schedule, plan.horizon - 1
    if not isinstance(schedule, Step):
        return None
    steps = [plan.milestone(schedule, m) for m in schedule.milestones]
    if steps == sorted({step for step in steps if 0 < step <= last}):
        return None
    whole = plan.config.epochs if schedule.unit == "epochs" else 1
    least = whole / plan.horizon
    return (
        f"schedule: the milestones {list(schedule.milestones)} come to the steps {steps} of "
        f"{plan.horizon:,}; they must rise, and lie within 1 to {last:,}: use values from "
        f"{least:.2g} to {least * last:.4g}, at least {least:.2g} apart"
    )


def _target(plan: RunPlan) -> str | None:
    target, epochs = plan.config.target, len(plan.epochs)
    if target is None or target.held_for <= epochs:
        return None
    return (
        f"target: held_for {target.held_for} asks for more evaluations than a run of {epochs} "
        f"epochs has: set held_for to {epochs} or less, or more epochs"
    )
