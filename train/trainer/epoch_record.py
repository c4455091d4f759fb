"""What the steps of one epoch add up to: the numbers of its record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from train.config.plan import EpochPlan
from train.config.run import RunConfig
from train.record.measurements import EpochRecord, NoiseScale, TrustRatios
from train.step.noise_scale import epoch_noise, same_data_alarm
from train.step.result import StepResult
from train.trainer.evaluate import Evaluation

Floats = npt.NDArray[np.float64]


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
