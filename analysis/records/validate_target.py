"""Does what a record says of its target follow from its epochs? Counted again, not believed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from train.config.run import Target
from train.record.run import EpochRecord, RunRecord, TargetOutcome


def target_findings(record: RunRecord) -> Iterator[str]:
    """Reasons why a completed record contradicts itself about its target; none when it does not."""
    asked, found = record.config.target, record.target
    if asked is None:
        if found is not None:
            yield "it speaks of a target, the config sets none"
        return
    if found is None:
        yield "the config sets a target, the record does not say what came of it"
        return
    yield from _goal_findings(record.epochs, asked, found)
    if found.met:
        yield from _met_findings(record.epochs, asked, found)
    elif held_at(record.epochs, asked) is not None:
        yield f"it says that its target was not met ({found.why}), yet its epochs meet it"


def held_at(epochs: Sequence[EpochRecord], target: Target) -> int | None:
    """Epoch at whose end the target was first held at ``held_for`` evaluations in a row and, where
    it sets a limit, in time; None where it never was."""
    streak, seconds = 0, 0.0
    for epoch in epochs:
        seconds += epoch.train_s + epoch.eval_s
        streak = streak + 1 if _holds(epoch, target) else 0
        if streak >= target.held_for:
            late = target.within_s is not None and seconds > target.within_s
            return None if late else epoch.epoch
    return None


def _holds(epoch: EpochRecord, target: Target) -> bool:
    asked = (
        (epoch.train_accuracy, target.train_accuracy),
        (epoch.validation_accuracy, target.validation_accuracy),
    )
    return all(goal is None or (value is not None and value >= goal) for value, goal in asked)


def _goal_findings(
    epochs: Sequence[EpochRecord], asked: Target, found: TargetOutcome
) -> Iterator[str]:
    """Each accuracy by itself; older records do not tell."""
    for goal in found.held:
        name = f"{goal.accuracy}_accuracy"
        alone = Target(held_for=asked.held_for, **{name: goal.goal})
        if goal.goal != getattr(asked, name) or goal.epoch != held_at(epochs, alone):
            yield (
                f"it says that {goal.accuracy} accuracy {goal.goal:g} was held after epoch "
                f"{goal.epoch}, its epochs say otherwise"
            )


def _met_findings(
    epochs: Sequence[EpochRecord], target: Target, found: TargetOutcome
) -> Iterator[str]:
    met = held_at(epochs, target)
    if met is None or found.epoch != met:
        when = "never" if met is None else f"after epoch {met}"
        yield f"it says that its target was met after epoch {found.epoch}, its epochs: {when}"
        return
    until = [epoch for epoch in epochs if epoch.epoch <= met]
    for name in ("steps", "images"):
        told, summed = getattr(found, name), sum(getattr(epoch, name) for epoch in until)
        if told != summed:
            yield f"its target took {told} {name}, its epochs until then: {summed:,}"
    spent = sum(epoch.train_s + epoch.eval_s for epoch in until)
    if found.seconds is None or not math.isclose(found.seconds, spent, rel_tol=1e-6):
        yield f"its target took {found.seconds} s, its epochs until then: {spent:.3f} s"
