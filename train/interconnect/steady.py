"""Before the tournament: how steady is one pair, and how many may run at the same time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from train.interconnect.again import Run
from train.interconnect.matrix import robust_deviation
from train.interconnect.record import TOGETHER, Measurement, Noise
from train.interconnect.rounds import Pair, Round

#: So many pairs are compared alone and in company.
COMPARED = 3
#: Where so many give no number, none is likely to.
TRIED = 5
_NOISE = "noise"


class Steady(NamedTuple):
    """noise: None where no pair gave a number. company: pairs that may run at the same time."""

    noise: Noise | None
    company: int


async def look_at_noise(run: Run, first: Round) -> Steady:
    """One pair alone, twice; then some pairs alone, and in less and less company until it costs
    them no more than 1 - TOGETHER. first: pairs that share no node."""
    alone: dict[Pair, list[float]] = {}
    steady: Measurement | None = None
    for pair in first[:TRIED]:
        (found,) = await run((pair,), _NOISE)
        if found.rates and steady is None:
            (again,) = await run((pair,), _NOISE)
            steady = found.model_copy(update={"rates": (*found.rates, *again.rates)})
            found = steady
        if found.rates:
            alone[pair] = list(found.rates)
        if len(alone) == COMPARED:
            break
    if steady is None:
        return Steady(None, len(first))
    together, company = await _company(run, first, alone)
    return Steady(
        Noise(
            pair=(steady.sender, steady.receiver),
            cv=robust_deviation(steady.rates) / float(np.median(steady.rates)),
            together=together,
        ),
        company,
    )


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
