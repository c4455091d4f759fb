"""Takes the steps of an epoch: at which rate, how many in one call, and how long they took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.data.batches import Batches, process_batches
from train.data.dataset import Dataset
from train.distributed.awake import Awake
from train.distributed.world import Runtime
from train.record.run import RunError
from train.step.result import StepResult
from train.trainer.epoch import EpochAccumulator, fatal
from train.trainer.parts import Parts
from train.trainer.step_summaries import StepRow, StepSamples, step_row

#: What one call of the step is to last, seconds: long against the calling, short against a hang.
CALL_S = 0.25
MOST_PER_CALL = 64


@dataclass
class Stepper:
    """The steps of one run on this rank; :meth:`epoch` is collective.

    One step of each epoch is taken in parts, to measure them (:func:`sampled_step`). All others are
    taken in calls of several steps, as many as rank 0 finds to last some tenths of a second.
    """

    config: RunConfig
    runtime: Runtime
    data: Dataset
    parts: Parts
    beat: Callable[[str], None]
    awake: Awake
    samples: StepSamples = field(default_factory=StepSamples)
    position: float = 0.0  # of the schedule's clock: the step, or what AdaScale made of it
    skipped_in_a_row: int = 0  # steps, up to the last one
    per_call: int = 1  # steps, at most, in the epoch; equal on all ranks
    sampled_s: float = 0.0  # of the last epoch's sampled step, its wait for the batch included

    def epoch(self, plan: EpochPlan) -> tuple[EpochAccumulator, RunError | None]:
        """All steps, or those up to a fatal one, and what was fatal."""
        accumulator = EpochAccumulator()
        error = None
        self.sampled_s = 0.0
        sampled = sampled_step(plan)
        cut = calls(plan.steps, self.per_call, sampled)
        self.per_call = max(cut)
        self.parts.step.beat = lambda number, part: self.beat(_phase(plan, number, part))
        asked, suspended_s = self.awake.read()
        blocks = process_batches(
            self.config, self.data, self.parts.used, plan, self.runtime.rank, self.runtime.size,
            self.runtime.replicas, cut,
        )  # fmt: skip
        done = 0
        for block in blocks:
            left = block
            while len(left) and error is None:
                got, _ = self.awake.read()
                results = self._take(left, plan, done, sampled=done == sampled)
                ended, since_s = self.awake.read()
                if done == sampled:
                    self.sampled_s = ended - asked
                waited_s, call_s = (got - asked) / len(results), (ended - got) / len(results)
                suspended = since_s > suspended_s
                for result in results:
                    self.samples.add(step_row(plan, waited_s, call_s, result, suspended=suspended))
                    accumulator.add(result)
                    done += 1
                    self.skipped_in_a_row = self.skipped_in_a_row + 1 if result.skipped else 0
                    if result.applied:
                        self.position += result.gain
                    error = fatal(plan, done, result, self.skipped_in_a_row)
                left = left.after(len(results))
                asked, suspended_s = self.awake.read()
            if error is not None:
                break
        return accumulator, error

    def _take(
        self, batches: Batches, plan: EpochPlan, done: int, *, sampled: bool
    ) -> list[StepResult]:
        """The next steps; fewer where one was not applied, which is the last."""
        step, number = self.parts.step, plan.first_step + done
        self.beat(_phase(plan, number, ""))
        rates = [self.parts.plan.rate(self.position + ahead) for ahead in range(len(batches))]
        if sampled:
            return [step(batches.of_step(0), rates[0], number)]
        return step.several(batches, rates, number)

    def wanted_per_call(self, plan: EpochPlan) -> int:
        """Steps a call for the next epoch, as this rank's clock has it."""
        if plan.accumulation > 1 or self.parts.step.adascale:
            return 1
        return steps_per_call(self.samples.last_epoch())


def sampled_step(plan: EpochPlan) -> int | None:
    """Of the epoch, from 0, the step that is taken in parts: in its middle. Of several epochs that
    make up a pass over the images only the last has one; of passes of one step, every second."""
    if (plan.number + 1) % (plan.per_pass or 1):
        return None
    if plan.steps == 1 and plan.pass_number == plan.number:
        return 0 if plan.number % 2 else None
    return plan.steps // 2


def steps_per_call(rows: Sequence[StepRow]) -> int:
    """How many steps like those of ``rows`` one call is to take; 1 where nothing is known."""
    times = [row.call_s for row in rows if not (row.sampled or row.suspended)]
    if not times:
        return 1
    return int(min(max(CALL_S / max(float(np.median(times)), 1e-6), 1), MOST_PER_CALL))


def calls(steps: int, per_call: int, sampled: int | None) -> list[int]:
    """Steps of each call: at most ``per_call``, the sampled one alone."""
    before = steps if sampled is None else sampled
    after = steps - before - 1
    parts = [*_cut(before, per_call)]
    if sampled is not None:
        parts += [1, *_cut(after, per_call)]
    return parts


def _cut(steps: int, per_call: int) -> list[int]:
    whole, rest = divmod(steps, per_call)
    return [per_call] * whole + [rest] * (rest > 0)


def _phase(plan: EpochPlan, number: int, part: str) -> str:
    step = number - plan.first_step + 1
    return f"training step {step} of {plan.steps}, epoch {plan.number + 1}{part}"
