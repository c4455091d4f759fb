"""Was a run's target met, can it still be, and what did it take?

The clock is the run's own: seconds of training and evaluation of all its starts, without waiting
for a job, compiling and checkpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from train.config.run import Target
from train.record.measurements import EpochRecord, GoalHeld, TargetOutcome

_NO_EFFORT: dict[str, Any] = dict.fromkeys(("epoch", "steps", "images", "seconds"))
#: An epoch may be somewhat faster than all before it; what is stopped as hopeless must be so.
FASTER = 0.9
_ALL = "all"  # accuracies of the target at once


class Pursuit:
    """A run on its way to its target; each epoch is looked at once."""

    def __init__(
        self, target: Target, planned: int, epochs: Sequence[EpochRecord], origin_from: int = 0
    ) -> None:
        """``epochs``: so far, of ``planned``. ``origin_from``: those before the first that ran on
        the same devices and code as those to come, which say nothing of their pace."""
        self._target, self._planned, self._origin_from = target, planned, origin_from
        self._limit = "" if target.within_s is None else f" of {target.within_s:g} s"
        asked = {"train": target.train_accuracy, "validation": target.validation_accuracy}
        self._goals = {name: goal for name, goal in asked.items() if goal is not None}
        self._streaks = dict.fromkeys((_ALL, *self._goals), 0)  # evaluations in a row that held
        self._held: dict[str, dict[str, Any]] = {}  # the effort when a goal was held long enough
        self._effort: dict[str, Any] = {"epoch": 0, "steps": 0, "images": 0, "seconds": 0.0}
        self._fastest_s = 0.0  # of a steady epoch; 0: there was none
        self._last: EpochRecord | None = None
        for epoch in epochs:
            self.add(epoch)

    @property
    def _met(self) -> bool:
        held, limit = self._held.get(_ALL), self._target.within_s
        return held is not None and (limit is None or held["seconds"] <= limit)

    def add(self, epoch: EpochRecord) -> None:
        """The next epoch; one after the target was met does not count."""
        if self._met:
            return
        seconds = epoch.train_s + epoch.eval_s
        steady = self._last is not None and self._last.attempt == epoch.attempt
        if steady and epoch.epoch > self._origin_from:
            self._fastest_s = min(self._fastest_s or seconds, seconds)
        before, self._last = self._effort, epoch
        self._effort = {
            "epoch": epoch.epoch,
            "steps": before["steps"] + epoch.steps,
            "images": before["images"] + epoch.images,
            "seconds": before["seconds"] + seconds,
        }
        missed = self._missed(epoch)
        for goal in self._streaks:
            holds = not missed if goal == _ALL else goal not in missed
            self._streaks[goal] = self._streaks[goal] + 1 if holds else 0
            if self._streaks[goal] == self._target.held_for:
                self._held.setdefault(goal, self._effort)

    def outcome(self, broke_off: str | None = None) -> TargetOutcome | None:
        """What the record says of the target; None while it is undecided.

        broke_off: why the run ends here although the target is undecided, as that it diverged.
        """
        if self._met:
            effort, times = self._held[_ALL], self._target.held_for
            rows = "once" if times == 1 else f"at {times} evaluations in a row"
            spent = f"{effort['seconds']:.1f} s{self._limit}"
            why = f"held {rows}, the last after epoch {effort['epoch']} and {spent}"
        else:
            unmet = self._obstacle() or broke_off
            if unmet is None:
                return None
            effort, why = _NO_EFFORT, unmet
            if self._last is not None:
                missed = ", ".join(self._missed(self._last).values())
                why += f"; the last evaluation: {missed or 'held'}"
        held = tuple(
            GoalHeld(accuracy=name, goal=goal, **self._held.get(name, _NO_EFFORT))
            for name, goal in self._goals.items()
        )
        return TargetOutcome(met=self._met, **effort, why=why, held=held)

    def _missed(self, epoch: EpochRecord) -> dict[str, str]:
        """The accuracies below their goals, in words; one that is null holds nothing."""
        found = {"train": epoch.train_accuracy, "validation": epoch.validation_accuracy}
        words = {"train": "training", "validation": "validation"}
        return {
            name: f"{words[name]} accuracy {_plain(found[name])} of {goal:g}"
            for name, goal in self._goals.items()
            if (accuracy := found[name]) is None or accuracy < goal
        }

    def _obstacle(self) -> str | None:
        """No accuracy is extrapolated: all coming evaluations may hold. Only steady epochs show the
        pace of the coming ones."""
        target, limit = self._target, self._limit
        if late := self._held.get(_ALL):
            return f"held only after epoch {late['epoch']} and {late['seconds']:.1f}{limit}"
        done, spent = self._effort["epoch"], self._effort["seconds"]
        needed = target.held_for - self._streaks[_ALL]
        short = f"{needed} more evaluation{'s' if needed > 1 else ''} in a row needed"
        left = self._planned - done
        if left < needed:
            words = f"{left} of {self._planned} epochs left" if left > 0 else "no epoch left"
            return f"{short}, {words} after epoch {done}"
        least_s = needed * FASTER * self._fastest_s
        if target.within_s is None or (
            spent < target.within_s and spent + least_s <= target.within_s
        ):
            return None
        pace = f", and the fastest epoch so far took {self._fastest_s:.1f} s" if least_s else ""
        return f"{short}, {spent:.1f}{limit} spent after epoch {done}{pace}"


def _plain(accuracy: float | None) -> str:
    """Cut, not rounded: 0.7499996 must not read as a target of 0.75 that was reached."""
    return "unknown" if accuracy is None else f"{int(accuracy * 10_000) / 10_000:g}"
