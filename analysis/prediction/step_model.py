"""The step time against ranks, put together from what was measured of its parts.

T(k) = base f(k) + shown(k) + waiting(k), in seconds per step:

- f(k) = 1 under weak scaling, k0 / k under strong scaling; base is what is left of the measured
  steps without the two other terms: computing and input.
- shown(k) = max(0, A(k) - h f(k)). A(k) is the all-reduce of a step's gradients over k ranks: in
  proportion to the alpha-beta model of the network, or without one c (k - 1) / k + d (k - 1), a
  ring's bytes and messages (the messages with three counts or more that communicate). c, d and h,
  what is hidden behind computing, are those that training had. Where all of it was hidden, more
  might be: h is then too small and the forecast too slow.
- waiting(k) = s M(k), M the expected largest of k standard normal numbers: ranks differ at random.

Runs without the parts of their steps give base, c and d by non-negative least squares, h = s = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special
from scipy.integrate import trapezoid
from scipy.optimize import nnls

from analysis.prediction import Scaling

Floats = npt.NDArray[np.float64]
#: Seconds of the all-reduce of a step's gradients, by ranks; 0 of one.
AllReduce = Callable[[int], float]
_ALONE = (0.0, 0.0, 0.0)  # the parts of one rank


class Measured(NamedTuple):
    """One rank count of a series. step_s: of the runs.

    parts: means over runs of the all-reduce alone, of what of it overlaps no computing, and of the
    waiting. None: the runs do not have them; of one rank all are 0.
    """

    ranks: int
    step_s: tuple[float, ...]
    parts: tuple[float, float, float] | None = None
    nodes: int = 1
    shared_cores: bool = False

    @property
    def mean(self) -> float:
        return float(np.exp(np.mean(np.log(self.step_s))))


class StepModel(NamedTuple):
    """base, hidden (h), s: seconds. network: terms of A, each with its coefficient. first: k0."""

    base: float
    network: tuple[tuple[float, AllReduce], ...]
    hidden: float
    s: float
    first: int
    scaling: Scaling

    def seconds(self, ranks: int) -> float:
        """T(ranks)."""
        f = ideal_share(ranks, self.first, self.scaling)
        sent = sum(c * term(ranks) for c, term in self.network)
        shown = max(0.0, sent - self.hidden * f)
        return self.base * f + shown + self.s * largest_of_normals(ranks)


def fit_step(
    usable: Sequence[Measured], scaling: Scaling, network: AllReduce | None = None
) -> StepModel | None:
    """None where the counts are too few for a model, or leave no time for computing.

    Args:
        usable: by ranks, the first of them being k0.
        network: measured; None: that of a ring, as fitted.
    """
    several = [m for m in usable if m.ranks > 1]
    has_parts = all(m.parts for m in several)
    if not several or (len(usable) < 2 and not has_parts):
        return None
    first, mean = usable[0].ranks, np.array([m.mean for m in usable])
    f = np.array([ideal_share(m.ranks, first, scaling) for m in usable])
    # one count more than there are coefficients
    room = max(1, len(several) - 1 if has_parts else len(usable) - 2)
    terms = (network,) if network else TERMS[:room]
    needed = np.array([[term(m.ranks) for term in terms] for m in usable])
    hidden = s = 0.0
    if has_parts:
        sent, shown, waited = np.array([m.parts or _ALONE for m in usable]).T
        base = float(np.mean((mean - shown - waited) / f))
        # counts at which all was hidden show only the least of what can be
        hides, seen = (sent - shown) / f, shown > 0
        hidden = max(float(hides[seen].mean() if seen.any() else hides.max()), 0.0)
        skew = np.array([[largest_of_normals(m.ranks)] for m in usable])
        c, (s,) = _fitted(needed, sent, mean), _fitted(skew, waited, mean)
    else:
        base, *c = _fitted(np.c_[f, needed], mean, mean)
    network_terms = tuple(zip(c, terms, strict=True))
    return StepModel(base, network_terms, hidden, s, first, scaling) if base > 0 else None


def _fitted(terms: Floats, seconds: Floats, step: Floats) -> list[float]:
    """Non-negative least squares with errors as shares of the step. ``terms``: (counts, terms)."""
    found, _ = nnls(terms / step[:, None], seconds / step)
    return [float(value) for value in found]


def ideal_share(ranks: int, first: int, scaling: Scaling) -> float:
    """Images per rank over those at ``first`` ranks."""
    return 1.0 if scaling == "weak" else first / ranks


@lru_cache(maxsize=256)
def largest_of_normals(ranks: int) -> float:
    """Expected largest of ``ranks`` standard normal numbers; 0, 0.56, 0.85, 1.03 for 1 to 4.

    The integral of 1 - F over x > 0 less that of F over x < 0, F = Phi^ranks.
    """
    x = np.linspace(0, 10, 4001)
    above, below = 1 - special.ndtr(x) ** ranks, special.ndtr(-x) ** ranks
    return float(trapezoid(above - below, x))


#: In proportion to the bytes of a ring, the messages of a tree and of a ring: where no network was
#: measured.
TERMS: tuple[AllReduce, ...] = (
    lambda ranks: (ranks - 1) / ranks,
    math.log2,
    lambda ranks: ranks - 1.0,
)


def measured_counts(runs: pd.DataFrame) -> list[Measured]:
    """One entry per rank count.

    Args:
        runs: completed ones of one series, with a step time.
    """
    found = []
    for _, own in runs.groupby("gpus"):
        measured = own[["communication_s", "exposed_s", "waiting_s"]]
        sent, exposed, waiting = measured.to_numpy(float, na_value=np.nan).T
        parts = sent - waiting, np.maximum(exposed - waiting, 0), waiting
        sent, shown, waited = (float(part.mean()) for part in parts)
        known = None if math.isnan(sent + shown + waited) else (sent, shown, waited)
        ranks, nodes = int(own["gpus"].max()), int(own["nodes"].max())
        shared, steps = bool(own["oversubscribed"].any()), tuple(own["step_s"].tolist())
        found.append(Measured(ranks, steps, known, nodes, shared))
    return found
