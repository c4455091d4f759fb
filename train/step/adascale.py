"""AdaScale (Johnson et al. 2020, 2007.05105): how much further one step of a large batch may go.

The base rate belongs to a batch of ``base`` images. Where the gradient is all noise, a batch n
times as large allows n times the rate; where it has none, no more than the base rate; between them
the gain is the ratio of the expected squared norms of the two batches' gradients (section 3).
"""

from __future__ import annotations

import math

from train.step.noise_scale import estimate


class AdaScale:
    """The gain of each step of a run, from the norms of the steps before it (appendix B.3).

    Per step, S and G2 are estimated, clipped at zero and averaged: the plain mean of the first
    1000 / n steps, then the moving average that keeps max(1 - n/1000, 0) of the past, n gradients a
    step. So a gain does not depend on the images that it is applied to, and the first one is 1.
    Clipping before averaging is the paper's: a G2 that is small against its scatter comes out too
    large, and the gain too small.

    One departure: the paper keeps a gradient's variance at 1e-6 or more, so that the gain of small
    gradients depends on the scale of the loss. Here it is zero or more.
    """

    def __init__(self, small: int, big: int, base: int) -> None:
        """Images behind one gradient, behind the mean gradient of a step, and of the batch that the
        base rate was chosen for. A step of one gradient only, which shows no noise, has gain 1."""
        self._small, self._big, self._base = small, big, base
        self._samples = 0
        self._trace = self._gradient_sq = 0.0

    @property
    def next_gain(self) -> float:
        """Of the next step, from those before it: Algorithm 1, (S / base + G2) / (S / big + G2),
        between 1 and big / base. S is the trace of the per-image gradient covariance, G2 the
        squared norm of the true gradient; 1 if both are zero: there is nothing to scale."""
        below = self._trace / self._big + self._gradient_sq
        return (self._trace / self._base + self._gradient_sq) / below if below > 0 else 1.0

    def take_in(self, small_sq: float, big_sq: float) -> None:
        """Mean squared norm of a step's gradients of ``small`` images, and squared norm of their
        mean; what is not finite is left out."""
        if self._small >= self._big or not (math.isfinite(small_sq) and math.isfinite(big_sq)):
            return
        trace, gradient_sq = estimate(small_sq, big_sq, self._small, self._big)
        self._samples += 1
        # 1 / samples makes a plain mean; it ends where the moving average would forget faster
        share = max(1 / self._samples, min(1.0, self._big / self._small / 1000))
        self._trace += share * (max(float(trace), 0.0) - self._trace)
        self._gradient_sq += share * (max(float(gradient_sq), 0.0) - self._gradient_sq)

    def state(self) -> tuple[float, ...]:
        """What ``restore`` needs to continue exactly."""
        return (float(self._samples), self._trace, self._gradient_sq)

    def restore(self, state: tuple[float, ...]) -> None:
        samples, self._trace, self._gradient_sq = state
        self._samples = int(samples)
