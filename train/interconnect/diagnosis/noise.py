"""Before the tournament: how steady is one pair, and how many may run at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from train.interconnect.diagnosis.retest import Run
from train.interconnect.diagnosis.statistics import robust_deviation
from train.interconnect.measure.rounds import Pair, Round
from train.interconnect.record import TOGETHER, Measurement, Noise

#: So many pairs are compared alone and in company.
COMPARED = 3
#: Where so many give no number, none is likely to.
TRIED = 5
_NOISE = "noise"


#: One connection may be the limit where an end computes for so much of the time.
_COMPUTES = 0.3
#: So many connections are tried then, as long as each step gains so much.
STREAMS, GAIN = (4, 16), 1.2


class Steady(NamedTuple):
    """noise: None where no pair gave a number. company: pairs that may run at the same time.
    streams: connections that each of them needs."""

    noise: Noise | None
    company: int
    streams: int


async def look_at_noise(run: Run, first: Round, use: Callable[[int], None]) -> Steady:
    """Some pairs alone, with as many connections as they need, one of them twice; then all of them
    in less and less company until it costs them no more than 1 - TOGETHER.

    first: pairs that share no node. use: how many connections all later calls of ``run`` make.
    """
    reached: dict[Pair, tuple[int, Measurement]] = {}
    for pair in first[:TRIED]:
        use(1)
        (found,) = await run((pair,), _NOISE)
        if found.rates:
            reached[pair] = await _filled(run, pair, found, use)
        if len(reached) == COMPARED:
            break
    # a slow node needs no more connections than one: those who gain from more decide for all
    streams = max((used for used, _ in reached.values()), default=1)
    use(streams)
    if not reached:
        return Steady(None, len(first), streams)
    alone: dict[Pair, list[float]] = {}
    for number, (pair, (used, best)) in enumerate(reached.items()):
        rates = list(best.rates) if used == streams else []
        if number == 0 or not rates:
            (again,) = await run((pair,), _NOISE)
            rates += again.rates
        if rates:
            alone[pair] = rates
    steady = next(iter(alone), None)
    if steady is None:
        return Steady(None, len(first), streams)
    together, company = await _company(run, first, alone)
    _, told = reached[steady]
    noise = Noise(
        pair=(told.sender, told.receiver),
        cv=robust_deviation(alone[steady]) / float(np.median(alone[steady])),
        together=together,
    )
    return Steady(noise, company, streams)


async def _filled(
    run: Run, pair: Pair, one: Measurement, use: Callable[[int], None]
) -> tuple[int, Measurement]:
    """The number of connections beyond which the pair gains little, and what it reached."""
    streams, best = 1, one
    for more in STREAMS:
        if not _computes(best):
            break
        use(more)
        (found,) = await run((pair,), _NOISE)
        if not found.rates or np.median(found.rates) < GAIN * np.median(best.rates):
            break
        streams, best = more, found
    return streams, best


def _computes(measurement: Measurement) -> bool:
    ends = (measurement.at_sender, measurement.at_receiver)
    return any(end is not None and end.cpu_s > _COMPUTES * end.wall_s for end in ends)


async def _company(
    run: Run, first: Round, alone: dict[Pair, list[float]]
) -> tuple[float | None, int]:
    """What full company leaves of the rates alone, and the number that costs nothing."""
    # those whose rate alone is known come first, so that they are in every smaller company, too
    order = (*alone, *(pair for pair in first if pair not in alone))
    together: float | None = None
    company = len(order)
    while company > 1:
        found = await run(order[:company], _NOISE)
        ratios = [
            float(np.median(m.rates) / np.median(alone[pair]))
            for pair, m in zip(order, found, strict=False)
            if pair in alone and m.rates
        ]
        kept = min(ratios, default=0.0)
        together = kept if together is None else together
        if kept >= TOGETHER:
            break
        company //= 2
    return together, company
