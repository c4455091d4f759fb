"""What the steps of one epoch add up to: the numbers of its record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.record.builder import why_no_noise
from train.record.measurements import EpochRecord, NoiseScale, TrustRatios
from train.record.run import RunError
from train.step.noise_scale import epoch_noise, same_data_alarm
from train.step.result import StepResult
from train.trainer.divergence import not_finite, overflows
from train.trainer.evaluate import Evaluation

Floats = npt.NDArray[np.float64]
#: Steps in a row that half precision may skip before the run counts as diverged.
MOST_SKIPPED = 20


@dataclass
class EpochAccumulator:
    """Sums and samples of an epoch's steps, on this rank."""

    results: list[StepResult] = field(default_factory=list)

    def add(self, result: StepResult) -> None:
        self.results.append(result)

    def sums(self) -> Floats:
        """float64 [4] of this rank, to be summed over ranks: loss x images, images of that loss,
        correct, images. A loss that overflowed in half precision, in a step that was skipped for
        it, is left out, so that the epoch has a loss where the run came back; images and hits keep
        that step."""
        table = [
            (r.loss * r.images, r.images, r.correct, r.images)
            if math.isfinite(r.loss) or not r.skipped
            else (0.0, 0, r.correct, r.images)
            for r in self.results
        ]
        return np.asarray(table, np.float64).sum(axis=0)

    @property
    def skipped(self) -> int:
        return sum(result.skipped for result in self.results)

    def rates(self) -> tuple[float, float, float]:
        """First, last and mean rate as applied; where no step was, as they would have been."""
        applied = [result.rate for result in self.results if result.applied]
        rates = applied or [result.rate for result in self.results]
        return rates[0], rates[-1], float(np.mean(rates))

    def gradient_norm(self) -> float | None:
        norms = [math.sqrt(r.gradient_sq) for r in self.results if math.isfinite(r.gradient_sq)]
        return float(np.mean(norms)) if norms else None

    def gain(self) -> float:
        return float(np.mean([result.gain for result in self.results]))

    def trust(self) -> TrustRatios | None:
        found = (result.trust for result in self.results if result.trust is not None)
        known = [trust for trust in found if np.isfinite(trust[0]).all()]
        if not known:
            return None
        factors = np.stack([factors for factors, _ in known])  # (steps, variables)
        return TrustRatios(
            median=float(np.median(factors)),
            smallest=float(factors.min()),
            largest=float(factors.max()),
            clipped_share=float(np.concatenate([clipped for _, clipped in known]).mean()),
            layers=tuple(float(f"{middle:.4g}") for middle in np.median(factors, axis=0)),
        )

    def noise(self, small: int, big: int, seed: int) -> NoiseScale | None:
        """small, big: images behind one gradient of ``small_sq`` and of ``gradient_sq``."""
        if small >= big:
            return None
        singles, _, bigs = self._squares()
        return epoch_noise(singles, bigs, small, big, seed=seed)

    def alarm(self, small: int, own: int, big: int, compression: str) -> str | None:
        """What to tell where the gradients of batches, or those of ranks, are one and the same.

        own: images behind one gradient of ``own_sq``.
        """
        singles, owns, bigs = self._squares()
        found = (
            same_data_alarm(squares, bigs, images, big, compression)
            for squares, images in ((singles, small), (owns, own))
            if images < big
        )
        return next((alarm for alarm in found if alarm), None)

    def _squares(self) -> tuple[Floats, Floats, Floats]:
        """float64 [steps] each: of single batches, of ranks, of all."""
        rows = [(r.small_sq, r.own_sq, r.gradient_sq) for r in self.results]
        singles, owns, bigs = np.asarray(rows, np.float64).T
        return singles, owns, bigs


@dataclass(frozen=True)
class Measured:
    """What an epoch needs for its record besides its steps; equal on all ranks."""

    attempt: int
    sums: Floats  # as those of a tally, of all ranks
    checked: Evaluation | None  # None where the epoch was broken off
    trained_s: float
    evaluated_s: float
    suspended_s: float = 0.0
    sampled_s: float = 0.0  # of the step that was taken in parts
    steps_per_call: int = 1


def epoch_record(
    config: RunConfig,
    plan: EpochPlan,
    tally: EpochAccumulator,
    measured: Measured,
    *,
    labelled: bool,
) -> EpochRecord:
    first, last, mean = tally.rates()
    loss, counted, correct, images = measured.sums
    checked = measured.checked
    return EpochRecord(
        epoch=plan.number + 1,
        attempt=measured.attempt,
        global_batch=plan.global_batch,
        steps=len(tally.results),
        images=int(images),
        train_s=measured.trained_s,
        eval_s=measured.evaluated_s if checked else 0.0,
        lr_first=first,
        lr_last=last,
        train_loss=_finite(loss / counted) if counted else None,
        train_accuracy=float(correct / images) if labelled else None,
        validation_loss=_finite(checked.loss) if checked else None,
        validation_accuracy=checked.accuracy if checked and labelled else None,
        validation_images=checked.images if checked else 0,
        lr_mean=mean,
        accumulation=plan.accumulation,
        skipped_steps=tally.skipped,
        gradient_norm=tally.gradient_norm(),
        noise=tally.noise(config.batch_per_rank, plan.global_batch, config.seed)
        if measures_noise(config)
        else None,
        trust=tally.trust(),
        gain=tally.gain() if config.technique.lr_scaling == "adascale" else None,
        sigmoid_input=checked.sigmoid_input if checked else (),
        suspended_s=measured.suspended_s,
        sampled_steps=int(measured.sampled_s > 0),
        sampled_s=measured.sampled_s,
        steps_per_call=measured.steps_per_call,
    )


def alarm_of(config: RunConfig, plan: EpochPlan, tally: EpochAccumulator) -> str | None:
    """What makes the epoch's numbers doubtful."""
    if not measures_noise(config):
        return None
    own = config.batch_per_rank * plan.accumulation
    return tally.alarm(
        config.batch_per_rank, own, plan.global_batch, config.technique.compression
    )  # fmt: skip


def fatal(plan: EpochPlan, step: int, result: StepResult, skipped_in_a_row: int) -> RunError | None:
    """What ends the run at this step, from 1 in its epoch; the same on all ranks.

    skipped_in_a_row: steps up to this one, those of earlier epochs included.
    """
    if skipped_in_a_row > MOST_SKIPPED:
        return overflows(plan.number + 1, step, MOST_SKIPPED)
    if not result.applied and not result.skipped:
        return not_finite(plan.number + 1, step)
    return None


def measures_noise(config: RunConfig) -> bool:
    return why_no_noise(config) is None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
