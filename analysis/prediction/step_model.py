"""The step time against ranks, put together from what was measured of its parts.

T(k) = base f(k) + shown(k) + waiting(k), in seconds per step:

- f(k) = 1 under weak scaling, k0 / k under strong scaling; base is what is left of the measured
  steps without the two other terms: computing and input.
- shown(k) = max(0, c A(k) - h f(k)). A(k) is the all-reduce of a step's gradients over k ranks by
  the alpha-beta model of the network, or without one in proportion to a ring's bytes, (k - 1) / k.
  c is what training took in place of A, h what of it was hidden behind computing, both as measured.
  Where all of it was hidden, more might be: h is then too small and the forecast too slow.
- waiting(k) = s M(k), M the expected largest of k standard normal numbers: ranks differ at random.

Runs without the parts of their steps give base and c by non-negative least squares, h = s = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special
from scipy.optimize import nnls

from analysis.prediction.laws import Refusal, Scaling

Floats = npt.NDArray[np.float64]
NO_COMPUTING = "communication and waiting leave no time of the steps for computing"
#: Seconds of the all-reduce of a step's gradients, by ranks.
AllReduce = Callable[[int], float]


class Measured(NamedTuple):
    """One rank count of a series. step_s: of the runs. The parts are means over runs.

    communication_s, shown_s: without the waiting; the all-reduce alone, and what of it overlaps no
    computing. None: the runs do not have it.
    """

    ranks: int
    step_s: tuple[float, ...]
    communication_s: float | None = None
    shown_s: float | None = None
    waiting_s: float | None = None
    nodes: int | None = None
    shared_cores: bool = False

    @property
    def mean(self) -> float:
        return float(np.exp(np.mean(np.log(self.step_s))))

    @property
    def has_parts(self) -> bool:
        return None not in (self.communication_s, self.shown_s, self.waiting_s)


class StepModel(NamedTuple):
    """base, hidden (h), s: seconds. c: a ratio to what ``network`` gives. first: k0."""

    base: float
    c: float
    hidden: float
    s: float
    first: int
    scaling: Scaling
    network: AllReduce

    def seconds(self, ranks: int) -> float:
        """T(ranks)."""
        f = ideal_share(ranks, self.first, self.scaling)
        shown = max(0.0, self.c * self.network(ranks) - self.hidden * f) if ranks > 1 else 0.0
        return self.base * f + shown + self.s * largest_of_normals(ranks)


def fit_step(
    usable: Sequence[Measured], scaling: Scaling, network: AllReduce
) -> StepModel | Refusal:
    """usable: by ranks, the first of them being k0."""
    several = [m for m in usable if m.ranks > 1]
    if not several:
        return Refusal("only one rank was measured")
    first, mean = usable[0].ranks, np.array([m.mean for m in usable])
    f = np.array([ideal_share(m.ranks, first, scaling) for m in usable])
    if not all(m.has_parts for m in several):
        if len(usable) < 2:
            return Refusal("one count, and its runs have no parts of their steps")
        needed = np.array([network(m.ranks) if m.ranks > 1 else 0.0 for m in usable])
        (base, c), _ = nnls(np.stack([f, needed], axis=1) / mean[:, None], np.ones(len(mean)))
        if base <= 0:
            return Refusal(NO_COMPUTING)
        return StepModel(float(base), float(c), 0.0, 0.0, first, scaling, network)
    parts = np.array([(m.communication_s or 0.0, m.shown_s or 0.0, m.waiting_s or 0.0)
                      if m.ranks > 1 else (0.0, 0.0, 0.0) for m in usable])  # fmt: skip
    base = float(np.mean((mean - parts[:, 1] - parts[:, 2]) / f))
    if base <= 0:
        return Refusal(NO_COMPUTING)
    own = np.array([m.ranks > 1 for m in usable])
    needed = np.array([network(m.ranks) for m in several])
    skew = np.array([largest_of_normals(m.ranks) for m in several])
    sent, shown, waited = parts[own].T
    hidden = (sent - shown) / f[own]
    seen = shown > 0
    # counts at which all was hidden show only the least of what can be
    most = float(hidden[seen].mean()) if seen.any() else float(hidden.max())
    return StepModel(
        base, _slope(needed, sent, mean[own]), max(most, 0.0), _slope(skew, waited, mean[own]),
        first, scaling, network,
    )  # fmt: skip


def _slope(x: Floats, y: Floats, step: Floats) -> float:
    """Least squares of y = slope x, errors as shares of the step."""
    return float((x * y / step**2).sum() / (x * x / step**2).sum())


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
    return float(np.trapz(above - below, x))


def ring_bytes(ranks: int) -> float:
    """A ring's bytes in proportion: for where no network was measured."""
    return (ranks - 1) / ranks


def measured_counts(runs: pd.DataFrame) -> list[Measured]:
    """One entry per rank count of the completed runs of one series.

    Args:
        runs: as analysis.topics.scaling.loss.loss takes them.
    """
    used = runs[(runs["status"] == "completed") & runs["step_s"].notna()]
    found = []
    for ranks, own in used.groupby("gpus"):
        waited = own["waiting_s"]
        shown = own["exposed_s"] - np.minimum(waited, own["exposed_s"])
        sent, seen, behind = (
            None if part.isna().any() else float(part.mean())
            for part in (own["communication_s"] - waited, shown, waited)
        )
        found.append(
            Measured(int(str(ranks)), tuple(own["step_s"].astype(float)), sent, seen, behind,
                     int(own["nodes"].max()), bool(own["oversubscribed"].any()))
        )  # fmt: skip
    return found
