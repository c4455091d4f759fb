"""The step time of the next two doublings, from a few measured counts and the network's model.

Each measured count is predicted from the smaller ones (error = predicted / measured - 1). What the
model was off per doubling, with a prior of what such models are off elsewhere, gives the interval:
t, wider in proportion to the doublings ahead. A model, no measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from analysis import fmt
from analysis.prediction import Scaling
from analysis.prediction.step_model import AllReduce, Measured, StepModel, fit_step, ideal_share
from analysis.records.columns import SHARED_CORES
from analysis.stats.levels import LEVEL
from analysis.table import Estimate

DOUBLINGS = 2
#: With a larger error at the largest measured count, one doubling ahead is worth nothing: an
#: efficiency of 0.9 would be read as anything from 0.77 to 1.
MOST_HELD_OUT = 0.15
#: A model that misses what it was fitted to by more does not describe these runs.
MOST_RESIDUAL = 0.10
#: What such a model is off per doubling, before anything of this network is known, and how many
#: hold-outs that knowledge is worth: one hold-out can be right by luck. By simulation the intervals
#: printed then cover at least 93 % where a network departs from the model at random by up to 7 %
#: per doubling, or steadily by up to 15 %; where it departs by 10 % at random, 86 to 95 %.
PRIOR_PER_DOUBLING, PRIOR_HOLD_OUTS = 0.07, 4
#: A hold-out nearer than this many doublings shows noise more than the model.
_NEAREST = 0.5
UNTRIED = "no smaller counts to predict the largest measured one from"
NO_TIME = "communication and waiting leave no time of the steps for computing"


class HeldOut(NamedTuple):
    """A measured count, predicted from smaller ones. error: predicted / measured - 1."""

    fitted_on: tuple[int, ...]
    ranks: int
    error: float


class Point(NamedTuple):
    """One count ahead, with 95 % intervals. efficiency: against the smallest measured count."""

    ranks: int
    step_s: Estimate
    efficiency: Estimate


class Forecast(NamedTuple):
    """held_out: the last one is of the largest measured count. refused: why there are no points."""

    fitted_on: tuple[int, ...]
    refused: str | None
    held_out: tuple[HeldOut, ...] = ()
    points: tuple[Point, ...] = ()


def forecast(
    measured: Sequence[Measured], scaling: Scaling, network: AllReduce | None = None
) -> Forecast:
    """The step at larger counts, or why there is no number.

    Args:
        measured: of one series, by ranks. Counts within one node are left out where others span
            several: their all-reduce is of memory.
        network: of the same nodes, from a fit that misses no size by more than WORST.
    """
    across = any(m.nodes > 1 for m in measured)
    usable = [m for m in measured if not (across and m.ranks > 1 and m.nodes == 1)]
    counts = tuple(m.ranks for m in usable)
    baseline = measured[0]
    if any(m.shared_cores for m in (baseline, *usable)):
        return Forecast(counts, SHARED_CORES)
    model = fit_step(usable, scaling, network)
    if model is None:
        return Forecast(counts, NO_TIME if len(usable) > 1 else UNTRIED)
    residual = max(abs(model.seconds(m.ranks) / m.mean - 1) for m in usable)
    # each count from those below it, where these allow a fit
    below = ((i, fit_step(usable[:i], scaling, network)) for i in range(1, len(usable)))
    held_out = tuple(
        HeldOut(counts[:i], counts[i], smaller.seconds(counts[i]) / usable[i].mean - 1)
        for i, smaller in below if smaller
    )  # fmt: skip
    if why := _why_not(held_out, residual, counts[-1]):
        return Forecast(counts, why, held_out)
    return Forecast(counts, None, held_out, tuple(_points(model, baseline, usable, held_out)))


def _why_not(held_out: Sequence[HeldOut], residual: float, largest: int) -> str | None:
    if not held_out or held_out[-1].ranks != largest:
        return UNTRIED
    error = held_out[-1].error
    if abs(error) > MOST_HELD_OUT:
        return (
            f"fitted to the smaller counts, the step on {largest} ranks comes out "
            f"{fmt.percent(abs(error))} too {'long' if error > 0 else 'short'}; more than "
            f"{fmt.percent(MOST_HELD_OUT)} is no basis"
        )
    off = f"the model is {fmt.percent(residual)} off what it was fitted to"
    return off if residual > MOST_RESIDUAL else None


def _points(
    model: StepModel, baseline: Measured, usable: Sequence[Measured], held_out: Sequence[HeldOut]
) -> Iterable[Point]:
    off = [
        math.log1p(h.error) / max(math.log2(h.ranks / h.fitted_on[-1]), _NEAREST) for h in held_out
    ]
    df = PRIOR_HOLD_OUTS + len(off)
    per_doubling = (PRIOR_HOLD_OUTS * PRIOR_PER_DOUBLING**2 + sum(o**2 for o in off)) / df
    between = [np.var(np.log(m.step_s), ddof=1) for m in usable if len(m.step_s) > 1]
    noise = float(np.mean(between)) if between else 0.0
    for doublings in range(1, DOUBLINGS + 1):
        ranks = usable[-1].ranks * 2**doublings
        step = model.seconds(ranks)
        ideal = baseline.mean * ideal_share(ranks, baseline.ranks, model.scaling)
        factor = math.exp(
            float(stats.t.ppf((1 + LEVEL) / 2, df)) * math.sqrt(per_doubling * doublings**2 + noise)
        )
        yield Point(ranks, *(
            Estimate(value, value / factor, value * factor, len(usable))
            for value in (step, ideal / step)
        ))  # fmt: skip
