"""What one optimizer step answers."""

from __future__ import annotations

import math
from typing import NamedTuple


class StepParts(NamedTuple):
    """How long the parts of a step took on this rank, seconds."""

    waiting_s: float | None  # for slower ranks; None where no round of all ranks was timed
    negotiation_s: float | None  # of one round of ranks that are all there
    communication_s: float  # the all-reduce, and the waiting before it; 0 alone
    update_s: float  # the optimizer


class StepResult(NamedTuple):
    """One optimizer step; ``loss`` and ``correct`` are this rank's, the rest equal on all ranks.

    Squares are of L2 norms over all variables. ``gradient_sq`` not finite means an overflow, which
    ``skipped`` the update, or that the run has diverged; all ranks see it in the same step.
    """

    # mean cross-entropy of this rank's images, unweighted, against the labels as they are smoothed;
    # without the network's regularisation losses
    loss: float
    correct: int
    images: int  # of this rank
    small_sq: float  # of the gradients of single batches, before the reduction: their mean
    own_sq: float  # of the ranks' own gradients, each the mean over its batches: their mean
    gradient_sq: float  # of the reduced gradient, before clipping
    skipped: bool
    rate: float  # as applied, or as it would have been
    gain: float  # of AdaScale, else 1: steps that the schedule's clock advances
    parts: StepParts | None  # None where all of the step is one graph

    @property
    def applied(self) -> bool:
        """Whether the weights were updated."""
        return math.isfinite(self.gradient_sq)
