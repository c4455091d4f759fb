"""From the times of steps to the summaries of a record: medians with their spread, steady state
only."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from train.record.measurements import RankSteps, Spread
from train.step.result import StepParts

Array = npt.NDArray[np.float64]
#: Few MB, and percentiles to a fraction of a percent.
MOST_ROWS = 2**16


class StepTimes(NamedTuple):
    """One step on this rank, seconds; steps of one call have equal shares of it."""

    input_s: float  # waiting for the batches
    call_s: float  # the whole step after that
    parts: StepParts | None = None  # of call_s; None where the step was not taken in parts


def usual_median(steps: Sequence[StepTimes]) -> tuple[float, float] | None:
    """Medians of a whole step and of its call, of the steps that were not taken in parts."""
    times = [(step.input_s + step.call_s, step.call_s) for step in steps if step.parts is None]
    if not times:
        return None
    whole, call = np.median(np.asarray(times, np.float64), axis=0)
    return float(whole), float(call)


class StepSamples:
    """What the record needs of this rank's steps: of the last ``MOST_ROWS``, so that its size does
    not grow with the run.

    The first epoch of a start is left out; if it is the only one, its first step.
    """

    def __init__(self) -> None:
        self.epochs = 0
        self.usual, self.sampled = (deque[tuple[float, ...]](maxlen=MOST_ROWS) for _ in range(2))

    def add(self, steps: Sequence[StepTimes]) -> None:
        """The steps of the next epoch, in which no rank was suspended."""
        if self.epochs == 1:
            self.usual.clear()
            self.sampled.clear()
        self.epochs += 1
        usual = usual_median(steps)
        for step in steps[1:] if self.epochs == 1 else steps:
            if step.parts is None:
                self.usual.append((step.input_s, step.call_s))
                continue
            waiting_s, negotiation_s, communication_s, update_s = (
                math.nan if part is None else part for part in step.parts
            )
            # two rounds measured its parts; clocks of these are read at different moments
            own_s = step.call_s - 2 * (step.parts.negotiation_s or 0.0)
            compute_s = max(own_s - communication_s, 0.0)
            # steps of a batch that grows are compared with those of their epoch
            longer_s = usual[1] - compute_s if usual else math.nan
            self.sampled.append(
                (compute_s, communication_s, update_s, waiting_s, negotiation_s, longer_s)
            )

    def summary(self, rank: int) -> RankSteps | None:
        """None without a step that was taken in parts, or without another."""
        if not self.sampled or not self.usual:
            return None
        waited, called = np.asarray(self.usual, np.float64).T
        compute, communication, update, waiting, negotiation, longer = np.asarray(
            self.sampled, np.float64
        ).T
        return RankSteps(
            rank=rank,
            step_s=spread(waited + called),
            input_s=spread(waited),
            compute_s=spread(compute),
            communication_s=spread(communication),
            update_s=spread(update),
            waiting_s=_known(waiting),
            negotiation_s=_known(negotiation),
            sampled=len(compute),
            exposed_s=_exposed_s(longer, float(np.median(communication))),
        )


def spread(samples: Sequence[float] | Array) -> Spread:
    """Summary of at least one sample."""
    values = np.asarray(samples, np.float64)
    p05, median, p95 = np.percentile(values, [5, 50, 95])
    return Spread(
        n=len(values), mean=float(values.mean()), median=float(median), p05=float(p05),
        p95=float(p95),
    )  # fmt: skip


def _known(samples: Array) -> Spread | None:
    known = samples[~np.isnan(samples)]
    return spread(known) if len(known) else None


def _exposed_s(longer: Array, communication_s: float) -> float | None:
    """longer: by how much the other steps of an epoch last longer than its sampled one computes."""
    if communication_s == 0:  # a world of one
        return 0.0
    known = _known(longer)
    return None if known is None or known.median < 0 else min(known.median, communication_s)
