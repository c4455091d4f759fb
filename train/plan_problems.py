"""What becomes of a request when it is rounded to the steps of a run: refused with the cure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from train.schedule_config import Step

if TYPE_CHECKING:  # which imports this module
    from train.schedule import RunPlan


def plan_problem(plan: RunPlan) -> str | None:
    """What is wrong with the plan, with what to do; None where nothing is."""
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
