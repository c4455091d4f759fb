"""Laws of the step time against ranks, and what more ranks are worth.

T is the step time and k the ranks; weak scaling keeps the images per rank, strong scaling those of
all ranks together.

- amdahl: efficiency 1 / (1 + s (k - 1)), s the serial share (Amdahl 1967): T = T1 (1 + s (k - 1))
  under weak scaling, T = T1 (s + (1 - s) / k) under strong scaling.
- communication: T = a + c log2 k + d (k - 1) / k, a becoming a / k under strong scaling: a tree's
  messages and a ring's bytes.

Parameters are at least 0. Intervals are t intervals of the linear fit with counts - parameters
degrees of freedom, from what the counts' means are off the law: a law that does not hold widens
them. They need two more counts than parameters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.optimize import nnls

from analysis.records.columns import SHARED_CORES
from analysis.stats.differences import ratio
from analysis.stats.intervals import LEVEL
from analysis.table import Estimate, percent

Floats = npt.NDArray[np.float64]
Scaling = Literal["weak", "strong"]
LawName = Literal["amdahl", "communication"]
PARAMETERS: dict[LawName, int] = {"amdahl": 2, "communication": 3}
#: Counts beyond the parameters; with fewer a law fits whatever was measured.
MORE_COUNTS = 2
#: A law that is off by more at a measured count says nothing of an efficiency near 0.9.
MOST_RESIDUAL = 0.10
#: What added ranks must at least give, as a share of what those before them give.
WORTH_IT = 0.7


class Refusal(NamedTuple):
    """Why there is no number."""

    reason: str


class Law(NamedTuple):
    """A fitted law. parameters: as in the basis, seconds. serial_share: of amdahl.

    residual: largest relative error at a measured count. left_out: root mean square of the relative
    errors at counts that were left out of the fit in turn.
    """

    name: LawName
    scaling: Scaling
    counts: tuple[int, ...]
    parameters: tuple[Estimate, ...]
    serial_share: Estimate | None
    residual: float
    left_out: float
    spread: Floats  # covariance of the parameters
    sd: float  # relative, of a count's mean around the law

    @property
    def _df(self) -> int:
        return len(self.counts) - len(self.parameters)

    def step(self, ranks: int) -> Estimate:
        """Step time to be measured at a count, seconds, with its 95 % prediction interval."""
        row = _basis(self.name, self.scaling, [ranks])[0]
        value = float(row @ [p.value for p in self.parameters])
        sd = math.sqrt(float(row @ self.spread @ row) + (self.sd * value) ** 2)
        half = float(stats.t.ppf((1 + LEVEL) / 2, self._df)) * sd
        return Estimate(value, max(value - half, 0.0), value + half, len(self.counts))


class Laws(NamedTuple):
    """Both laws; chosen: that with the smaller error at counts that were left out."""

    amdahl: Law | Refusal
    communication: Law | Refusal
    chosen: Law | Refusal


class Increase(NamedTuple):
    """From one measured count, ``before``, to the next, ``ranks``. speed_up: ratio of throughputs.
    marginal: throughput of an added rank over that of one before. gpu_hours: for the same images,
    as a share more."""

    before: int
    ranks: int
    speed_up: Estimate
    marginal: Estimate
    gpu_hours: Estimate


class Recommendation(NamedTuple):
    """The largest count to which each increase was worth it; by the intervals it may be as small
    as ``least`` or as large as ``most``. ends: no larger count was measured than ``most``."""

    ranks: int
    least: int
    most: int
    ends: bool


def fit_laws(
    steps: Mapping[int, Sequence[float]], scaling: Scaling, shared: Collection[int] = ()
) -> Laws:
    """
    Args:
        steps: step times of the runs, seconds, by ranks. Under strong scaling of one global batch.
        shared: counts at which ranks share cores.
    """
    amdahl, communication = (
        fit_law(name, steps, scaling, shared) for name in ("amdahl", "communication")
    )
    usable = [law for law in (amdahl, communication) if isinstance(law, Law)]
    return Laws(
        amdahl, communication, min(usable, key=lambda law: law.left_out) if usable else amdahl
    )


def fit_law(
    name: LawName,
    steps: Mapping[int, Sequence[float]],
    scaling: Scaling,
    shared: Collection[int] = (),
) -> Law | Refusal:
    """Non-negative least squares of the relative errors at the counts' means.

    Raises:
        ValueError: a time is not positive.
    """
    counts = sorted(k for k, times in steps.items() if len(times))
    if any(k in shared for k in counts):
        return Refusal(SHARED_CORES)
    needed = PARAMETERS[name] + MORE_COUNTS
    if len(counts) < needed:
        return Refusal(f"{len(counts)} rank counts measured, and this law needs {needed}")
    if any(min(steps[k]) <= 0 for k in counts):
        raise ValueError("found a step of 0 s or less, expected more")
    means = np.array([float(np.mean(steps[k])) for k in counts])
    basis = _basis(name, scaling, counts)
    scaled = basis / means[:, None]
    found = _solve(scaled)
    errors = scaled @ found - 1
    residual = float(np.abs(errors).max())
    if residual > MOST_RESIDUAL:
        worst = counts[int(np.abs(errors).argmax())]
        return Refusal(f"the law is {percent(residual)} off at {worst} ranks")
    df = len(counts) - len(found)
    variance = float(errors @ errors) / df
    spread = variance * np.linalg.inv(scaled.T @ scaled)
    left_out = [
        float(basis[i] @ _solve(np.delete(scaled, i, axis=0)) / means[i] - 1)
        for i in range(len(counts))
    ]
    return Law(
        name, scaling, tuple(counts),
        tuple(_parameter(v, spread[i, i], df, len(counts)) for i, v in enumerate(found)),
        _serial_share(found, spread, df, scaling, len(counts)) if name == "amdahl" else None,
        residual, math.sqrt(float(np.mean(np.square(left_out)))), spread, math.sqrt(variance),
    )  # fmt: skip


def increases(rates: Mapping[int, Sequence[float]]) -> tuple[Increase, ...]:
    """From each measured count to the next. rates: images/s of the runs, by ranks; intervals on the
    log scale, with the variances of both counts."""
    counts = sorted(k for k, own in rates.items() if len(own))
    return tuple(
        _increase(before, ranks, ratio(rates[ranks], rates[before]).estimate)
        for before, ranks in itertools.pairwise(counts)
    )


def _increase(before: int, ranks: int, speed_up: Estimate) -> Increase:
    more = ranks / before

    def gain(ratio: float) -> float:
        return (ratio - 1) / (more - 1)

    def cost(ratio: float) -> float:
        return more / ratio - 1

    value, low, high, n, note = speed_up
    assert value is not None
    marginal, hours = Estimate(gain(value), n=n, note=note), Estimate(cost(value), n=n, note=note)
    if low is not None and high is not None:
        marginal = marginal._replace(low=gain(low), high=gain(high))
        hours = hours._replace(low=cost(high), high=cost(low))
    return Increase(before, ranks, speed_up, marginal, hours)


def recommend(found: Sequence[Increase], threshold: float = WORTH_IT) -> Recommendation | Refusal:
    """The count up to which every increase is worth it, from the smallest measured one on."""
    if not found:
        return Refusal("only one rank count was measured")

    def last(enough: Callable[[Estimate], bool]) -> int:
        paying = list(itertools.takewhile(lambda one: enough(one.marginal), found))
        return paying[-1].ranks if paying else found[0].before

    most = last(lambda m: m.high is None or m.high >= threshold)
    return Recommendation(
        last(lambda m: m.value is not None and m.value >= threshold),
        last(lambda m: m.low is not None and m.low >= threshold),
        most,
        most == found[-1].ranks,
    )


def _basis(name: LawName, scaling: Scaling, counts: Sequence[int]) -> Floats:
    """Step time per unit of each parameter; (counts, parameters)."""
    k = np.asarray(counts, float)
    if name == "amdahl":
        columns = [np.ones_like(k), k - 1] if scaling == "weak" else [1 / k, np.ones_like(k)]
    else:
        compute = np.ones_like(k) if scaling == "weak" else 1 / k
        columns = [compute, np.log2(k), (k - 1) / k]
    return np.stack(columns, axis=1)


def _solve(scaled: Floats) -> Floats:
    solution, _ = nnls(scaled, np.ones(len(scaled)))
    return np.asarray(solution, np.float64)


def _parameter(value: float, variance: float, df: int, n: int) -> Estimate:
    half = float(stats.t.ppf((1 + LEVEL) / 2, df)) * math.sqrt(variance)
    return Estimate(float(value), max(float(value) - half, 0.0), float(value) + half, n)


def _serial_share(
    found: Floats, spread: Floats, df: int, scaling: Scaling, n: int
) -> Estimate | None:
    """s with its interval by the delta method, cut at 0 and, under strong scaling, at 1."""
    first, second = (float(v) for v in found)
    if scaling == "weak":
        if first == 0:
            return None
        share, slope = second / first, np.array([-second / first**2, 1 / first])
    else:
        total = first + second
        share, slope = second / total, np.array([-second, first]) / total**2
    half = float(stats.t.ppf((1 + LEVEL) / 2, df) * math.sqrt(slope @ spread @ slope))
    most = 1.0 if scaling == "strong" else math.inf
    return Estimate(share, max(share - half, 0.0), min(share + half, most), n)
