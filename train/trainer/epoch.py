"""One epoch: its steps, the batch-norm statistics and the evaluation after them, and the record of
what they add up to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.plan import EpochPlan, RunPlan
from train.config.run import RunConfig
from train.data.batches import Feed
from train.data.dataset import Dataset
from train.data.sampling import Indices
from train.distributed.communicator import Ranks, equal_hash, weights_hash
from train.distributed.watchdog import Watchdog
from train.distributed.world import Runtime
from train.record.measurements import EpochRecord, NoiseScale, TrustRatios
from train.record.run import RunError
from train.step.measured import MeasuredStep
from train.step.noise_scale import epoch_noise, same_data_alarm
from train.step.result import StepResult
from train.step.step import TrainStep
from train.trainer.batch_statistics import settle_statistics
from train.trainer.divergence import fatal
from train.trainer.evaluate import Evaluation, Evaluator
from train.trainer.step_summaries import StepSamples, StepTimes, usual_median

Floats = npt.NDArray[np.float64]
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
class Epochs:
    """The epochs of one run on this rank.

    One step of each epoch is taken in parts, to measure them (:func:`sampled_step`). All others are
    taken in calls of several steps, as many as rank 0 finds to last some tenths of a second.
    """

    config: RunConfig
    runtime: Runtime
    ranks: Ranks
    data: Dataset
    parts: Parts
    watchdog: Watchdog
    why_stop: Callable[[], int] = lambda: 0  # on rank 0: a number that all ranks get as ``stop``
    stop: int = 0
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
    _suspended_s: float = 0.0  # of this process, as far as epochs have counted it
    _warm: set[int] = field(default_factory=set)  # accumulated batches whose graphs are there

    def __post_init__(self) -> None:
        config, runtime, parts = self.config, self.runtime, self.parts
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
        per_call, began = self.per_call, self.now()
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
            self.why_stop() if self.ranks.rank == 0 else 0,
        ]  # fmt: skip
        weights = bytes.fromhex(weights_hash(self.parts.model.variables))
        sums, every = self.ranks.exchanged(
            np.concatenate([own, counts]), np.array([*mine, *weights])
        )
        equal_hash([bytes(map(int, of[len(mine) :])).hex() for of in every])
        *times, suspensions, shared, per_call, stop = every.T[: len(mine)]
        self.per_call, self.stop = int(per_call[0]), int(stop[0])
        self.oversubscribed |= bool(shared.any())
        self.checked = self.evaluator.evaluation(sums[len(own) :]) if len(counts) else None
        suspended_s = float(suspensions.max())
        if not suspended_s:
            self.samples.add(steps)
            self.usual_s = usual
        # ranks end the last step together, and evaluate until the last one is done; all others wait
        # for a rank that is suspended, and their clocks go on
        trained_s, evaluated_s, sampled_s = (
            float(of.min() if suspended_s else of.max()) for of in times
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
            sampled_s=sampled_s, sampled_steps=int(sampled_s > 0), steps_per_call=per_call,
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
        step, evaluating = self.parts.step, "preparing the evaluation"
        phase = f"preparing the steps of epoch {plan.number + 1}"
        step.beat = lambda _, part: self.watchdog.beat(phase + part, PREPARING_S)
        values = [variable.numpy() for variable in step.state]
        kept = step.last_rate, step.adascale
        (batches,) = self.feed.epoch(replace(plan, steps=1), [1], plan)
        rate = self.parts.plan.rate(self.position)
        step.beat(plan.first_step, "")
        step(batches, [rate], plan.first_step)
        self.measured(batches, rate, plan.first_step)
        self._settle(evaluating, PREPARING_S, most=1)
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


def epoch_sums(results: Sequence[StepResult]) -> Floats:
    """float64 [4] of this rank, to be summed over ranks: loss x images, images of that loss,
    correct, images. A loss that overflowed in half precision, in a step that was skipped for it, is
    left out, so that the epoch has a loss if the run came back; images and hits keep that step."""
    table = [
        (r.loss * r.images, r.images, r.correct, r.images)
        if math.isfinite(r.loss) or not r.skipped
        else (0.0, 0, r.correct, r.images)
        for r in results
    ]
    return np.asarray(table, np.float64).sum(axis=0)


def epoch_record(
    config: RunConfig,
    plan: EpochPlan,
    results: Sequence[StepResult],
    sums: Floats,
    checked: Evaluation | None,
    trust: npt.NDArray[np.float32] | None = None,
    **measured: Any,
) -> EpochRecord:
    """The same on all ranks, if they give the same.

    results: of the steps, on this rank. Only what is equal on all ranks is taken from them. sums:
    of :func:`epoch_sums`, over all ranks. trust: of the applied steps, [steps, 2, adapted
    variables]. measured: under their names in the record.
    """
    loss, counted, correct, images = sums
    # as they would have been, if none was applied
    rates = [r.rate for r in results if r.applied] or [r.rate for r in results]
    norms = [math.sqrt(r.gradient_sq) for r in results if math.isfinite(r.gradient_sq)]
    return EpochRecord(
        epoch=plan.number + 1,
        global_batch=plan.global_batch,
        steps=len(results),
        images=int(images),
        lr_first=rates[0],
        lr_last=rates[-1],
        train_loss=_finite(loss / counted) if counted else None,
        train_accuracy=float(correct / images) if config.labelled else None,
        validation_loss=_finite(checked.loss) if checked else None,
        validation_accuracy=checked.accuracy if checked and config.labelled else None,
        validation_images=checked.images if checked else 0,
        lr_mean=float(np.mean(rates)),
        accumulation=plan.accumulation,
        skipped_steps=sum(r.skipped for r in results),
        gradient_norm=float(np.mean(norms)) if norms else None,
        noise=_noise(config, plan, results),
        trust=None if trust is None else _trust(trust),
        gain=float(np.mean([r.gain for r in results]))
        if config.technique.lr_scaling == "adascale"
        else None,
        sigmoid_input=checked.sigmoid_input if checked else (),
        **measured,
    )


def alarm_of(config: RunConfig, plan: EpochPlan, results: Sequence[StepResult]) -> str | None:
    """The alarm if the gradients of batches, or those of ranks, are one and the same."""
    if not config.shows_noise:
        return None
    own = config.batch_per_rank * plan.accumulation
    singles, owns, bigs = _squares(results)
    alarms = (
        same_data_alarm(squares, bigs, images, plan.global_batch, config.technique.compression)
        for squares, images in ((singles, config.batch_per_rank), (owns, own))
        if images < plan.global_batch
    )
    return next((alarm for alarm in alarms if alarm), None)


def _noise(config: RunConfig, plan: EpochPlan, results: Sequence[StepResult]) -> NoiseScale | None:
    if config.batch_per_rank == plan.global_batch or not config.shows_noise:
        return None
    singles, _, bigs = _squares(results)
    small, big = config.batch_per_rank, plan.global_batch
    return epoch_noise(singles, bigs, small, big, seed=config.seed)


def _squares(results: Sequence[StepResult]) -> Floats:
    """float64 [3, steps]: squared norms of the gradients of single batches, of ranks, of all."""
    return np.asarray([(r.small_sq, r.own_sq, r.gradient_sq) for r in results], np.float64).T


def _trust(of_steps: npt.NDArray[np.float32]) -> TrustRatios | None:
    factors, clipped = np.moveaxis(of_steps[np.isfinite(of_steps).all(axis=(1, 2))], 1, 0)
    if not len(factors):
        return None
    return TrustRatios(
        median=float(np.median(factors)),
        smallest=float(factors.min()),
        largest=float(factors.max()),
        clipped_share=float(clipped.mean()),
        layers=tuple(float(f"{middle:.4g}") for middle in np.median(factors, axis=0)),
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
