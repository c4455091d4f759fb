"""What a process has of a cell, and how it takes the steps of an epoch: at which rate, how many in
one call, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import tensorflow as tf

from train.config.plan import EpochPlan, RunPlan
from train.data.batches import Batches
from train.data.sampling import Indices
from train.record.run import RunError
from train.step.one_graph import OneGraphStep
from train.step.result import StepResult
from train.trainer.divergence import fatal
from train.trainer.step_summaries import StepSamples, StepTimes, usual_median

#: What one call of the step is to last, seconds: long against the calling, short against a hang.
CALL_S = 0.25
MOST_PER_CALL = 64
#: Making the graph of a large network gives no sign of life for so long, seconds.
PREPARING_S = 1800.0


@dataclass(frozen=True)
class Parts:
    """One process' parts of a cell."""

    plan: RunPlan
    used: Indices  # training images of this cell
    model: tf.keras.Model  # that is evaluated
    step: OneGraphStep


@dataclass
class Stepper:
    """The steps of one run on this rank; :meth:`epoch` and :meth:`warm_up` are collective.

    One step of each epoch is taken in parts, to measure them (:func:`sampled_step`). All others are
    taken in calls of several steps, as many as rank 0 finds to last some tenths of a second.
    """

    parts: Parts
    batches: Callable[[EpochPlan, Sequence[int]], Iterator[Batches]]  # of calls of so many steps
    beat: Callable[..., None]  # of Watchdog.beat
    clock: Callable[[], float]  # seconds, without suspensions
    samples: StepSamples = field(default_factory=StepSamples)
    position: float = 0.0  # of the schedule's clock: the step, or what AdaScale made of it
    skipped_in_a_row: int = 0  # steps, up to the last one
    per_call: int = 1  # steps, at most, in the epoch; equal on all ranks
    warm: set[int] = field(default_factory=set)  # accumulated batches whose graphs are there
    steps: list[StepTimes] = field(default_factory=list)  # of the last epoch
    usual_s: tuple[float, float] | None = None  # a usual step, and its call, by the last epochs
    sampled_s: float = 0.0  # of the last epoch's sampled step, its wait for the batch included
    extra_s: float = 0.0  # what that step took longer than a usual one

    def warm_up(self, plan: EpochPlan, evaluate: Callable[[], object]) -> None:
        """Take a step of either form as the epoch has them, evaluate, and undo them: what is done
        once, as making graphs and choosing kernels, is then no part of the epoch's seconds."""
        if plan.accumulation in self.warm:
            return
        self.warm.add(plan.accumulation)
        step = self.parts.step
        phase = f"preparing the steps of epoch {plan.number + 1}"
        step.beat = lambda _, part: self.beat(phase + part, PREPARING_S)
        values = [variable.numpy() for variable in step.state]
        last_rate, adascale = step.last_rate, step.adascale
        (batches,) = self.batches(replace(plan, steps=1), [1])
        for sampled in (False, True):
            self._take(batches, plan, 0, sampled=sampled)
        evaluate()
        for variable, value in zip(step.state, values, strict=True):
            variable.assign(value)
        step.push()
        step.last_rate, step.adascale = last_rate, adascale

    def epoch(self, plan: EpochPlan) -> tuple[list[StepResult], RunError | None]:
        """Of all steps, or those up to a fatal one, and what was fatal."""
        done: list[StepResult] = []
        error = None
        self.sampled_s, self.steps = 0.0, []
        sampled = sampled_step(plan)
        cut = calls(plan.steps, self.per_call, sampled)
        self.per_call = max(cut)

        def beat(number: int, part: str) -> None:
            step = number - plan.first_step + 1
            self.beat(f"training step {step} of {plan.steps}, epoch {plan.number + 1}{part}")

        self.parts.step.beat = beat
        asked = self.clock()
        for block in self.batches(plan, cut):
            left = block
            while len(left) and error is None:
                got = self.clock()
                first = len(done)
                results = self._take(left, plan, first, sampled=first == sampled)
                ended = self.clock()
                if first == sampled:
                    self.sampled_s = ended - asked
                waited_s, call_s = (got - asked) / len(results), (ended - got) / len(results)
                for result in results:
                    self.steps.append(StepTimes(waited_s, call_s, result.parts))
                    done.append(result)
                    self.skipped_in_a_row = self.skipped_in_a_row + 1 if result.skipped else 0
                    if result.applied:
                        self.position += result.gain
                    error = fatal(plan, len(done), result, self.skipped_in_a_row)
                left = left.after(len(results))
                asked = self.clock()
            if error is not None:
                break
        usual = usual_median(self.steps) or self.usual_s
        self.extra_s = max(self.sampled_s - usual[0], 0.0) if usual and self.sampled_s else 0.0
        return done, error

    def keep_times(self) -> None:
        """Count the last epoch's step times: no rank was suspended in it."""
        self.samples.add(self.steps)
        self.usual_s = usual_median(self.steps) or self.usual_s

    def _take(
        self, batches: Batches, plan: EpochPlan, done: int, *, sampled: bool
    ) -> list[StepResult]:
        """The next steps; fewer where one was not applied, which is the last."""
        step, number = self.parts.step, plan.first_step + done
        step.beat(number, "")
        rates = [self.parts.plan.rate(self.position + ahead) for ahead in range(len(batches))]
        if sampled:
            return [step(batches.of_step(0), rates[0], number)]
        return step.several(batches, rates, number)

    def wanted_per_call(self, plan: EpochPlan) -> int:
        """Steps a call for the next epoch, as this rank's clock has it."""
        if plan.accumulation > 1 or self.parts.step.adascale or self.usual_s is None:
            return 1
        return int(min(max(CALL_S / max(self.usual_s[1], 1e-6), 1), MOST_PER_CALL))


def sampled_step(plan: EpochPlan) -> int | None:
    """Of the epoch, from 0, the step that is taken in parts: in its middle. Of several epochs that
    make up a pass over the images only the last has one; of passes of one step, every second."""
    if (plan.number + 1) % plan.per_pass:
        return None
    if plan.steps == 1 and plan.pass_number == plan.number:
        return 0 if plan.number % 2 else None
    return plan.steps // 2


def calls(steps: int, per_call: int, sampled: int | None) -> list[int]:
    """Steps of each call: at most ``per_call``, the sampled one alone."""
    firsts = [*range(0, steps, per_call)]
    if sampled is not None:
        after = range(sampled + 1, steps, per_call)
        firsts = [*range(0, sampled, per_call), sampled, *after]
    return [following - first for first, following in pairwise([*firsts, steps])]
