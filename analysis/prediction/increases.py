"""What more ranks are worth: throughput of each measured count against the one before."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from analysis.stats.differences import ratio
from analysis.table import Estimate

#: What added ranks must at least give, as a share of what those before them give.
WORTH_IT = 0.7


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


def increases(rates: Mapping[int, Sequence[float]]) -> tuple[Increase, ...]:
    """From each measured count to the next. rates: images/s of the runs, by ranks; intervals on the
    log scale, with the variances of both counts."""
    return tuple(
        _increase(before, ranks, ratio(rates[ranks], rates[before]))
        for before, ranks in itertools.pairwise(sorted(rates))
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


def recommend(found: Sequence[Increase]) -> Recommendation:
    """The count up to which every increase is worth it, from the smallest measured one on;
    ``found``: one or more."""

    def last(enough: Callable[[Estimate], bool]) -> int:
        paying = list(itertools.takewhile(lambda one: enough(one.marginal), found))
        return paying[-1].ranks if paying else found[0].before

    most = last(lambda m: m.high is None or m.high >= WORTH_IT)
    return Recommendation(
        last(lambda m: m.value is not None and m.value >= WORTH_IT),
        last(lambda m: m.low is not None and m.low >= WORTH_IT),
        most,
        most == found[-1].ranks,
    )
