"""Was a run's target met, can it still be, and what did it take? Pure functions of its epochs.

The clock is the run's own: seconds of training and evaluation of all its starts, summed over its
epochs. Waiting for a job, compiling outside of an epoch and checkpoints are not on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import accumulate
from typing import Any

from train.config.run import Target
from train.record.run import EpochRecord, GoalHeld, TargetOutcome

_UNMET = "the target was not met"
_EFFORT = ("epoch", "steps", "images", "seconds")
#: Dotted path in the record -> why a value is null where the target was not met.
REASONS = {f"target.{name}": f"{_UNMET} (target.why)" for name in _EFFORT} | {
    f"target.held.{name}": "this accuracy was never held for as long" for name in _EFFORT
}
#: An epoch may be somewhat faster than all before it; what is stopped as hopeless must be so.
FASTER = 0.9


def steady_epochs(epochs: Sequence[EpochRecord]) -> list[EpochRecord]:
    """All but the first epoch of each start, which pays for tracing and cold caches."""
    return [
        epoch
        for before, epoch in zip([None, *epochs], epochs, strict=False)
        if before is not None and before.attempt == epoch.attempt
    ]


class Decision(Enum):
    GO_ON = "go on"
    MET = "met"
    HOPELESS = "hopeless"  # also where no epoch is left


def decide(epochs: Sequence[EpochRecord], target: Target, planned: int) -> Decision:
    """Whether to train another epoch, after ``epochs`` of ``planned``.

    Ranks measure different times: one of them decides, and tells the others.
    """
    if _met_at(epochs, target) is not None:
        return Decision.MET
    return Decision.GO_ON if _obstacle(epochs, target, planned) is None else Decision.HOPELESS


def outcome(
    epochs: Sequence[EpochRecord], target: Target, planned: int, broke_off: str | None = None
) -> TargetOutcome | None:
    """What the record says of the target; None while it is undecided.

    Args:
        epochs: from the first one on, of all starts.
        target: of the config.
        planned: epochs of the whole run.
        broke_off: why the run ends here although the target is undecided, as that it diverged.
    """
    met = _met_at(epochs, target)
    if met is not None:
        return _met(epochs[: met + 1], target)  # the run ends there
    why = _obstacle(epochs, target, planned) or broke_off
    if why is None:
        return None
    why = "; ".join([why, *_shortfall(epochs, target)])
    nothing = dict.fromkeys(_EFFORT)
    return TargetOutcome(met=False, **nothing, why=why, held=_each(epochs, target))


def seconds_spent(epochs: Sequence[EpochRecord]) -> float:
    return sum(epoch.train_s + epoch.eval_s for epoch in epochs)


def _holds(epoch: EpochRecord, target: Target) -> bool:
    """An accuracy that is null holds nothing."""
    return not _below(epoch, target)


def _below(epoch: EpochRecord, target: Target) -> list[str]:
    """The target's accuracies that an epoch misses, in words."""
    asked = (
        ("training", epoch.train_accuracy, target.train_accuracy),
        ("validation", epoch.validation_accuracy, target.validation_accuracy),
    )
    return [
        f"{name} accuracy {'unknown' if found is None else _plain(found)} of {goal:g}"
        for name, found, goal in asked
        if goal is not None and (found is None or found < goal)
    ]


def _plain(accuracy: float) -> str:
    """Cut, not rounded: 0.7499996 must not read as a target of 0.75 that was reached."""
    return f"{int(accuracy * 10_000) / 10_000:g}"


def _streaks(epochs: Sequence[EpochRecord], target: Target) -> list[int]:
    """For each epoch, at how many evaluations in a row, with its own, the target held."""
    held = (_holds(epoch, target) for epoch in epochs)
    return list(accumulate(held, lambda run, now: run + 1 if now else 0, initial=0))[1:]


def _met_at(epochs: Sequence[EpochRecord], target: Target) -> int | None:
    """Position of the first epoch at whose end the target had been held long enough, in time."""
    streaks = _streaks(epochs, target)
    first = next((i for i, streak in enumerate(streaks) if streak >= target.held_for), None)
    if first is None or target.within_s is None:
        return first
    return first if seconds_spent(epochs[: first + 1]) <= target.within_s else None


def _obstacle(epochs: Sequence[EpochRecord], target: Target, planned: int) -> str | None:
    """Why a target that is not met will not be; None where it still may.

    No accuracy is extrapolated: all coming evaluations may hold. Of the coming epochs' pace only
    steady ones tell, since the first epoch of a start pays for tracing the graph.
    """
    done, spent = len(epochs), seconds_spent(epochs)
    limit = "" if target.within_s is None else f" of {target.within_s:g} s"
    streaks = _streaks(epochs, target)
    if max(streaks, default=0) >= target.held_for:
        late = streaks.index(target.held_for) + 1
        return f"held only after epoch {late} and {seconds_spent(epochs[:late]):.1f}{limit}"
    needed = target.held_for - (streaks[-1] if streaks else 0)
    short = f"{needed} more evaluation{'s' if needed > 1 else ''} in a row needed"
    if planned - done < needed:
        left = f"{planned - done} of {planned} epochs left" if done < planned else "no epoch left"
        return f"{short}, {left} after epoch {done}"
    if target.within_s is None:
        return None
    steady = [epoch.train_s + epoch.eval_s for epoch in steady_epochs(epochs)]
    fastest = min(steady, default=0.0)
    if spent < target.within_s and spent + needed * FASTER * fastest <= target.within_s:
        return None
    pace = f", and the fastest epoch so far took {fastest:.1f} s" if steady else ""
    return f"{short}, {spent:.1f}{limit} spent after epoch {done}{pace}"


def _met(until: Sequence[EpochRecord], target: Target) -> TargetOutcome:
    """Of the epochs up to the one that met it."""
    effort = _effort(until)
    limit = f" of {target.within_s:g} s" if target.within_s is not None else ""
    times = "once" if target.held_for == 1 else f"at {target.held_for} evaluations in a row"
    return TargetOutcome(
        met=True,
        **effort,
        why=f"held {times}, the last after epoch {effort['epoch']} and "
        f"{effort['seconds']:.1f} s{limit}",
        held=_each(until, target),
    )


def _effort(until: Sequence[EpochRecord]) -> dict[str, Any]:
    """What the epochs took together."""
    return {
        "epoch": until[-1].epoch,
        "steps": sum(epoch.steps for epoch in until),
        "images": sum(epoch.images for epoch in until),
        "seconds": seconds_spent(until),
    }


def _each(epochs: Sequence[EpochRecord], target: Target) -> tuple[GoalHeld, ...]:
    """Each accuracy by itself, without the clock."""
    found: list[GoalHeld] = []
    for accuracy in ("train", "validation"):
        name = f"{accuracy}_accuracy"
        if (goal := getattr(target, name)) is None:
            continue
        alone = Target(held_for=target.held_for, **{name: goal})
        at = _met_at(epochs, alone)
        effort = dict.fromkeys(_EFFORT) if at is None else _effort(epochs[: at + 1])
        found.append(GoalHeld(accuracy=accuracy, goal=goal, **effort))
    return tuple(found)


def _shortfall(epochs: Sequence[EpochRecord], target: Target) -> list[str]:
    """What the last evaluation lacked."""
    if not epochs:
        return []
    missed = ", ".join(_below(epochs[-1], target)) or "held"
    return [f"the last evaluation: {missed}"]
