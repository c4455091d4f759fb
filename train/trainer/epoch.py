"""One epoch: its steps, the batch-norm statistics and the evaluation after them, and the record of
what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import tensorflow as tf

from train.config.plan import EpochPlan, RunPlan
from train.config.run import RunConfig
from train.data.batches import Feed
from train.data.dataset import Dataset
from train.data.sampling import Indices
from train.distributed.communicator import equal_hash, weights_hash
from train.distributed.watchdog import WAITING, Watchdog
from train.distributed.world import Runtime
from train.record.measurements import EpochRecord
from train.record.run import RunError
from train.step.measured import MeasuredStep
from train.step.result import StepResult
from train.step.step import TrainStep
from train.trainer.batch_statistics import settle_statistics
from train.trainer.divergence import fatal
from train.trainer.epoch_record import alarm_of, epoch_record, epoch_sums
from train.trainer.evaluate import Evaluation, Evaluator
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
    step: TrainStep


@dataclass
class EpochLoop:
    """The epochs of one run on this rank.

    One step of each epoch is taken in parts, to measure them (:func:`sampled_step`). All others are
    taken in calls of several steps, as many as rank 0 finds to last some tenths of a second.
    """

    config: RunConfig
    runtime: Runtime
    data: Dataset
    parts: Parts
    watchdog: Watchdog
    #: On rank 0, at the end of an epoch: why to stop and whether a checkpoint is due, which all
    #: ranks get as ``stop`` and ``saves``.
    what_next: Callable[[], tuple[int, bool]] = lambda: (0, False)
    stop: int = 0
    saves: bool = False
    error: RunError | None = None  # what broke the last epoch off
    alarms: list[str] = field(default_factory=list)
    oversubscribed: bool = False  # in an epoch so far, of earlier starts, too
    attempt: int = 1
    checked: Evaluation | None = None  # the last evaluation
    samples: StepSamples = field(default_factory=StepSamples)
    position: float = 0.0  # of the schedule's clock: the step, or what AdaScale made of it
    skipped_in_a_row: int = 0  # steps, up to the last one
    per_call: int = 1  # steps, at most, in the next epoch; equal on all ranks
    usual_s: tuple[float, float] | None = None  # a usual step, and its call, by the last epochs
    #: of this process, as far as epochs have counted it
    _suspended_s: float = field(default=0.0, init=False)
    #: accumulated batches whose graphs are there
    _warm: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        config, runtime, parts = self.config, self.runtime, self.parts
        self.ranks = runtime.ranks
        self.measured, self.now = MeasuredStep(parts.step), self.watchdog.awake.now
        self.evaluator = Evaluator(config, parts.model, self.data, self.ranks, self.watchdog.beat)
        self.feed = Feed(
            config, self.data, parts.used, runtime.rank, runtime.size, runtime.replicas
        )
        self._suspended_s = self.watchdog.awake.suspended_s()

    def run_epoch(self, plan: EpochPlan) -> EpochRecord:
        """Train and evaluate; the same on all ranks. Collective: besides what steps and batch-norm
        statistics send, one message.

        Raises:
            UnequalRanks: the ranks' weights differ.
            tf.errors.UnknownError: a peer ended (Horovod's way to say so).
        """
        step, sampled, results = self.parts.step, sampled_step(plan), list[StepResult]()
        steps: list[StepTimes] = []
        self._warm_up(plan)
        self._watch(plan)
        cut, sampled_s = calls(plan.steps, self.per_call, sampled), 0.0
        self.per_call = max(cut)
        began = asked = self.now()
        for batches in self.feed.epoch(plan, cut, self._following(plan)):
            left = batches  # a call takes fewer steps if one overflows
            while len(left) and self.error is None:
                got, first = self.now(), plan.first_step + len(results)
                rates = [self.parts.plan.rate(self.position + n) for n in range(len(left))]
                step.beat(first, "")
                if len(results) == sampled:
                    taken = [self.measured(left, rates[0], first)]
                else:
                    taken = step(left, rates, first)
                ended = self.now()
                if len(results) == sampled:
                    sampled_s = ended - asked
                waited_s, call_s = (got - asked) / len(taken), (ended - got) / len(taken)
                steps += [StepTimes(waited_s, call_s, result.parts) for result in taken]
                results += self._counted(plan, len(results), taken)
                left = left.after(len(taken))
                asked = self.now()
            if self.error is not None:
                break
        self.watchdog.watch(None)
        return self._record(plan, results, steps, self.now() - began, sampled_s)

    def _record(
        self, plan: EpochPlan, results: Sequence[StepResult], steps: Sequence[StepTimes],
        trained_s: float, sampled_s: float,
    ) -> EpochRecord:  # fmt: skip
        """Of steps that took ``trained_s``, the one in parts and its wait for images ``sampled_s``
        of it."""
        usual = usual_median(steps) or self.usual_s
        extra_s = max(sampled_s - usual[0], 0.0) if usual and sampled_s else 0.0
        used_per_call, began = self.per_call, self.now()
        # also if the epoch was broken off: the ranks end with one model in any case
        self._settle(f"settling the batch-norm statistics after epoch {plan.number + 1}")
        own = epoch_sums(results)
        counts = self.evaluator.counts() if self.error is None else np.zeros(0)
        ended, suspended_s = self.watchdog.awake.read()
        slept_s, self._suspended_s = suspended_s - self._suspended_s, suspended_s
        mine = [
            trained_s - extra_s, ended - began, sampled_s - extra_s, slept_s,
            float(self.runtime.shares()),
            self._wanted_per_call(self._following(plan), None if slept_s else usual),
            *(self.what_next() if self.ranks.rank == 0 else (0, False)),
        ]  # fmt: skip
        self.watchdog.beat(f"ending epoch {plan.number + 1}{WAITING}")
        weights = bytes.fromhex(weights_hash(self.parts.model.variables))
        sums, every = self.ranks.exchanged(
            np.concatenate([own, counts]), np.array([*mine, *weights])
        )
        if self.error is None:  # two NaN need not have the same bits
            equal_hash([bytes(map(int, of[len(mine) :])).hex() for of in every])
        *times, suspensions, shared, per_call, stop, saves = every.T[: len(mine)]
        self.per_call, self.stop, self.saves = int(per_call[0]), int(stop[0]), bool(saves[0])
        self.oversubscribed |= bool(shared.any())
        self.checked = self.evaluator.evaluation(sums[len(own) :]) if len(counts) else None
        suspended_s = float(suspensions.max())
        if not suspended_s:
            self.samples.add(steps)
            self.usual_s = usual
        # rank 0 begins last, since it alone writes between epochs; all evaluate until the last is
        # done. A rank's clock goes on while it waits for one that is suspended
        trained_s, evaluated_s, sampled_s = (
            float(of.min() if suspended_s else whole)
            for of, whole in zip(times, (times[0][0], times[1].max(), times[2][0]), strict=True)
        )
        # the first one: later epochs say the same, with other numbers of steps
        alarm = alarm_of(self.config, plan, results)
        if alarm and not any(earlier.startswith("epoch ") for earlier in self.alarms):
            self.alarms.append(f"epoch {plan.number + 1}: {alarm}")
        factors, self.parts.step.trust_factors = self.parts.step.trust_factors, []
        return epoch_record(
            self.config, plan, results, sums[: len(own)], self.checked,
            np.concatenate([of.numpy() for of in factors]) if factors else None,
            attempt=self.attempt, train_s=trained_s,
            eval_s=evaluated_s if self.checked else 0.0, suspended_s=suspended_s,
            sampled_s=sampled_s, sampled_steps=int(sampled_s > 0), steps_per_call=used_per_call,
        )  # fmt: skip

    def _counted(self, plan: EpochPlan, done: int, taken: Sequence[StepResult]) -> list[StepResult]:
        """Those up to one that ends the run."""
        for number, result in enumerate(taken, 1):
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if result.skipped else 0
            if result.applied:
                self.position += result.gain
            self.error = fatal(plan, done + number, result, self.skipped_in_a_row)
            if self.error is not None:
                return list(taken[:number])
        return list(taken)

    def _watch(self, plan: EpochPlan) -> None:
        """Let the step report its progress, from the host and from within its graphs."""
        step, of = self.parts.step, f"of {plan.steps}, epoch {plan.number + 1}"

        def phase(number: int, part: str) -> str:
            return f"training step {number - plan.first_step + 1} {of}{part}"

        step.beat = lambda number, part: self.watchdog.beat(phase(number, part))
        self.watchdog.watch(lambda: phase(*step.doing()))

    def _warm_up(self, plan: EpochPlan) -> None:
        """Take a step of either form as the epoch has them, evaluate, and undo them: what is done
        once, as making graphs and choosing kernels, is then no part of the epoch's seconds."""
        if plan.accumulation in self._warm:
            return
        self._warm.add(plan.accumulation)
        step = self.parts.step
        phase = f"preparing the steps of epoch {plan.number + 1}"
        step.beat = lambda _, part: self.watchdog.beat(phase + part, PREPARING_S)
        values = [variable.numpy() for variable in step.state]
        kept = step.last_rate, step.adascale
        (batches,) = self.feed.epoch(replace(plan, steps=1), [1])
        rate = self.parts.plan.rate(self.position)
        step.beat(plan.first_step, "")
        step(batches, [rate], plan.first_step)
        self.measured(batches, rate, plan.first_step)
        self._settle("preparing the evaluation", PREPARING_S, most=1)
        self.evaluator.answers(np.zeros(1, np.int64))
        for variable, value in zip(step.state, values, strict=True):
            variable.assign(value)
        step.back_end.push()
        step.last_rate, step.adascale = kept
        step.trust_factors.clear()
        self.ranks.barrier()  # ranks prepare at their own pace

    def _settle(self, phase: str, patience_s: float = 0.0, most: int | None = None) -> None:
        self.parts.step.back_end.pull()
        settle_statistics(
            self.config, self.data, self.parts.used, self.parts.model, self.ranks,
            lambda part: self.watchdog.beat(phase + part, patience_s), most,
        )  # fmt: skip
        self.parts.step.back_end.push()

    def _following(self, plan: EpochPlan) -> EpochPlan | None:
        return next(iter(self.parts.plan.epochs[plan.number + 1 :]), None)

    def _wanted_per_call(self, plan: EpochPlan | None, usual_s: tuple[float, float] | None) -> int:
        """Steps of a call in the next epoch, as this rank's clock has it."""
        usual_s = usual_s or self.usual_s
        if plan is None or plan.accumulation > 1 or self.parts.step.adascale or usual_s is None:
            return 1
        return int(min(max(CALL_S / max(usual_s[1], 1e-6), 1), MOST_PER_CALL))


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
