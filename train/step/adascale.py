"""AdaScale (Johnson et al. 2020, 2007.05105): how much further one step of a large batch may go.

The base rate belongs to a batch of ``base`` images. Where the gradient is all noise, a batch n
times as large allows n times the rate; where it has none, no more than the base rate; between them
the gain is the ratio of the expected squared norms of the two batches' gradients (section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from train.step.noise_scale import estimate


@dataclass(frozen=True)
class AdaScale:
    """The gain of the next step of a run, from the norms of the steps before (appendix B.3).

    Per step, S and G2 are estimated, clipped at zero and averaged: the plain mean of the first
    1000 / n steps, then the moving average that keeps max(1 - n/1000, 0) of the past, n gradients a
    step. So a gain does not depend on the images that it is applied to, and the first one is 1.
    Clipping before averaging is the paper's: a G2 that is small against its scatter comes out too
    large, and the gain too small.

    One departure: the paper keeps a gradient's variance at 1e-6 or more, so that the gain of small
    gradients depends on the scale of the loss. Here it is zero or more.
    """

    small: int  # images behind one gradient
    big: int  # images behind the mean gradient of a step; if not more, all gains are 1
    base: int  # images of the batch that the base rate was chosen for
    samples: int = 0
    trace: float = 0.0  # S, of the per-image gradient covariance
    gradient_sq: float = 0.0  # G2, squared norm of the true gradient

    @property
    def gain(self) -> float:
        """Algorithm 1, (S / base + G2) / (S / big + G2), between 1 and big / base; 1 if both are
        zero: there is nothing to scale."""
        below = self.trace / self.big + self.gradient_sq
        return (self.trace / self.base + self.gradient_sq) / below if below > 0 else 1.0

    def after(self, small_sq: float, big_sq: float) -> AdaScale:
        """A step with this mean squared norm of its gradients of ``small`` images, and squared norm
        of their mean; what is not finite is left out."""
        if self.small >= self.big or not (math.isfinite(small_sq) and math.isfinite(big_sq)):
            return self
        estimates = estimate(small_sq, big_sq, self.small, self.big)
        samples = self.samples + 1
        # 1 / samples makes a plain mean; it ends where the moving average would forget faster
        share = max(1 / samples, min(1.0, self.big / self.small / 1000))
        trace, gradient_sq = (
            before + share * (max(float(now), 0.0) - before)
            for before, now in zip((self.trace, self.gradient_sq), estimates, strict=True)
        )
        return replace(self, samples=samples, trace=trace, gradient_sq=gradient_sq)
