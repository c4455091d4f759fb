"""Gradient noise scale from what data-parallel training has anyway (1812.06162, appendix A.1).

B_simple = S / G2 is about the batch from which on larger ones save few steps: S the trace of the
per-image gradient covariance, G2 the squared norm of the true gradient. It ignores curvature, so it
is an estimate within a small factor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from train.config.technique import WIRES
from train.record.measurements import NoiseScale

Floats = npt.NDArray[np.float64]
REPLICATES = 2000  # of the bootstrap
LEVEL = 0.95
#: Longest block, steps: what neighbours share through the weights is over by then.
LONGEST_BLOCK = 20


def estimate(small: Any, big: Any, b: int, B: int) -> tuple[Floats, Floats]:
    """Unbiased (S, G2) of each step, float64 in the shape of the input (1812.06162, equation A.2).

    small: mean squared norm of the step's n = B/b gradients of b images each; big: squared norm of
    their mean. S = (small - big) / (1/b - 1/B) = b/(n-1) sum_r |g_r - mean|^2, G2 = big - S/B.
    Without replacement from N images, G2 + S/N estimates the squared norm of their gradient.
    """
    small, big = np.asarray(small, np.float64), np.asarray(big, np.float64)
    trace = (small - big) / (1 / b - 1 / B)
    return trace, big - trace / B


def epoch_noise(smalls: Any, bigs: Any, b: int, B: int, *, seed: int) -> NoiseScale | None:
    """Noise scale of one epoch from the norms of its steps, each of shape [steps].

    The averages of S and G2 are divided: a mean of ratios has no bound if G2 is near zero in single
    steps. If the interval of G2 covers zero, the noise scale is censored: it has a lower bound and
    no value. Steps that are not finite are left out; None if there is no other.
    """
    trace, gradient_sq = estimate(*_finite(smalls, bigs), b, B)
    steps = len(trace)
    if steps == 0:
        return None
    means = float(trace.mean()), float(gradient_sq.mean())
    about = {
        "steps": steps, "batch_small": b, "batch_big": B, "trace": means[0],
        "gradient_sq": means[1],
    }  # fmt: skip
    if steps < 3:  # there is no scatter to speak of
        return NoiseScale(**about, interval="too_few_steps", b_simple=None, low=None, high=None)
    low, high = _interval(_replicates(np.stack([trace, gradient_sq], axis=1), seed))
    if not math.isfinite(high):
        bound = low if math.isfinite(low) else None
        return NoiseScale(**about, interval="censored", b_simple=None, low=bound, high=None)
    value = max(means[0], 0.0) / means[1]
    return NoiseScale(**about, interval="measured", b_simple=value, low=low, high=high)


def same_data_alarm(
    smalls: Any, bigs: Any, b: int, B: int, compression: str = "none"
) -> str | None:  # fmt: skip
    """The alarm if the gradients of a step are one gradient: the ranks see the same images.

    Such a step has S = 0 up to rounding. Relative to ``small``, the mean over the ranks rounds each
    element by u = 2^-24 for each addition, with random sign, and the two sums of squares, of equal
    shape and order, by u log2(elements) each: about 50 u for the built-in networks. The bound is
    256 u = 2^-16, which real gradients of two ranks reach with a noise scale of b / 30,000 only. On
    the wire as fp16 (u = 2^-11) or bf16 (2^-8), the roundings of the few elements that carry a norm
    do not cancel and may reach 2 u: the bounds are u and u / 2, for noise scales of b / 1000 and
    b / 250. Nine of ten steps must be below the bound.

    It does not see ranks that share only some images, or draw them in orders of their own, or with
    dropout or gradient noise of their own. With accumulation a rank's own batches differ: the
    caller asks again with the gradients of ranks.
    """
    small, big = _finite(smalls, bigs)
    small, big = small[small > 0], big[small > 0]
    quiet = int(np.sum(small - big <= WIRES[compression].rounding * small))
    if not len(small) or quiet < 0.9 * len(small):
        return None
    return (
        f"in {quiet} of {len(small)} steps the {B // b} gradients of a step were equal to "
        f"rounding: the ranks train on the same images, so that {B:,} images are worth {b:,}. "
        "Expected: each rank its own part of every epoch. Look at how the data are divided."
    )


def _finite(smalls: Any, bigs: Any) -> tuple[Floats, Floats]:
    small, big = np.asarray(smalls, np.float64), np.asarray(bigs, np.float64)
    good = np.isfinite(small) & np.isfinite(big)
    return small[good], big[good]


def _replicates(pairs: Floats, seed: int) -> Floats:
    """Bootstrap means of (S, G2), shape [REPLICATES, 2], from those of the steps, [steps, 2].

    Moving blocks (Kuensch 1989), since neighbouring steps share most of their weights: an eighth
    of the epoch, 20 steps at most. Means over few drawn blocks, m, scatter too little: by
    sqrt((m-1)/m), and because the normal quantile that they follow is not Student's (Hesterberg
    2015, 1411.5279, section 3.3). They are spread about the mean by both factors.
    """
    steps = len(pairs)
    length = min(LONGEST_BLOCK, max(1, steps // 8))
    m = steps // length
    sums = np.concatenate([np.zeros((1, 2)), np.cumsum(pairs, axis=0)])
    blocks = (sums[length:] - sums[:-length]) / length
    drawn = np.random.default_rng(seed).integers(0, len(blocks), (REPLICATES, m))
    means = blocks[drawn].mean(axis=1)
    tail = (1 + LEVEL) / 2
    spread = stdtrit(m - 1, tail) / ndtri(tail) * math.sqrt(m / (m - 1))
    # blocks have more of the middle steps than of the first and last: keep the true mean
    return pairs.mean(axis=0) + spread * (means - means.mean(axis=0))


def _interval(replicates: Floats) -> tuple[float, float]:
    """Percentile interval of S / G2; without upper end where that of G2 covers zero."""
    trace, gradient_sq = replicates.T
    trace = np.maximum(trace, 0.0)  # as every trace of a covariance
    ratio = np.full(len(trace), np.inf)  # no gradient: no batch is too large
    np.divide(trace, gradient_sq, out=ratio, where=gradient_sq > 0)
    tail = (1 - LEVEL) / 2
    # no interpolation: a neighbour may be infinite
    low = float(np.quantile(ratio, tail, method="lower"))
    high = float(np.quantile(ratio, 1 - tail, method="higher"))
    return low, high
