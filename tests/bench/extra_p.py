"""The forecast beside Extra-P's, on the same simulated step times.

Usage: python -m tests.bench.extra_p, after ``pip install extrap`` (4.2, which brings Qt). Each case
is fitted to three runs on each of 1, 2, 4, 8 and 16 ranks, 100 times with other noise; printed is
the error, predicted / true - 1, at 32 and 64 ranks. Ours refuses where its own hold-out fails;
Extra-P (Calotoiu et al. 2013) always gives a number, without an interval.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analysis.prediction.collectives import Link, Parts, ring
from analysis.prediction.forecast import forecast
from analysis.prediction.step_model import AllReduce, Measured, largest_of_normals

COUNTS, AHEAD, SERIES = (1, 2, 4, 8, 16), (32, 64), 100
NOISE, NOISE_OF_PARTS = 0.01, 0.03  # of a run's step, of a part's mean over runs; relative
#: A step and its interval, seconds.
Told = tuple[float, float | None, float | None]
LINK = Link(50e-6, 8 / 1e9)


class Case(NamedTuple):
    """Seconds of a step besides 0.1 s of computing: all-reduce, of it hidden, largest delay.
    network: what a model of a ring says of the all-reduce; None: the all-reduce is that ring."""

    name: str
    reduce_s: AllReduce
    hidden_s: float = 0.0
    delay_s: float = 0.0
    network: AllReduce | None = None


def bandwidth(ranks: int) -> float:
    return ring(ranks, 5e6).seconds(LINK)


def latency(ranks: int) -> float:
    return ring(ranks, 2e4).seconds(Link(4e-4, 8 / 1e9))


def doubling(ranks: int, size: float) -> Parts:
    """log2 n exchanges of the whole array (Thakur et al. 2005, section 4.5)."""
    return Parts(float(np.log2(ranks)), float(np.log2(ranks)) * size)


CASES = (
    Case("a ring, bandwidth", bandwidth),
    Case("a ring, half of it hidden", bandwidth, 0.04),
    Case("a ring, latency", latency),
    Case("a tree", lambda k: doubling(k, 1e6).seconds(LINK),
         network=lambda k: ring(k, 1e6).seconds(LINK)),
    Case("random delays alone", lambda k: 0.0, delay_s=0.01, network=latency),
    Case("a ring that slows by 7 % a doubling",
         lambda k: bandwidth(k) * 1.07 ** float(np.log2(k)), network=bandwidth),
)  # fmt: skip


def true(case: Case, ranks: int) -> tuple[float, float, float, float]:
    """Step, all-reduce, what is shown of it, and waiting, in seconds."""
    sent = case.reduce_s(ranks) if ranks > 1 else 0.0
    shown = max(0.0, sent - case.hidden_s)
    waiting = case.delay_s * largest_of_normals(ranks)
    return 0.1 + shown + waiting, sent, shown, waiting


def series(case: Case, random: np.random.Generator) -> list[Measured]:
    found = []
    for ranks in COUNTS:
        step, *parts = true(case, ranks)
        steps = tuple(step * np.exp(NOISE * random.normal(size=3)))
        sent, shown, waited = (part * np.exp(NOISE_OF_PARTS * random.normal()) for part in parts)
        found.append(Measured(ranks, steps, (sent, shown, waited) if ranks > 1 else None))
    return found


def ours(measured: Sequence[Measured], network: AllReduce | None = None) -> list[Told]:
    made = forecast(measured, "weak", network)
    return [(point.step_s.value or 0, point.step_s.low, point.step_s.high) for point in made.points]


def theirs(measured: Sequence[Measured]) -> list[Told]:
    # not in our environment: it brings a graphical interface
    from extrap.entities.callpath import Callpath  # type: ignore[import-not-found]
    from extrap.entities.coordinate import Coordinate  # type: ignore[import-not-found]
    from extrap.entities.measurement import Measurement  # type: ignore[import-not-found]
    from extrap.entities.metric import Metric  # type: ignore[import-not-found]
    from extrap.modelers.single_parameter.basic import (  # type: ignore[import-not-found]
        SingleParameterModeler,
    )

    where, what = Callpath("step"), Metric("seconds")
    points = [Measurement(Coordinate(m.ranks), where, what, list(m.step_s)) for m in measured]
    model = SingleParameterModeler().create_model(points).hypothesis.function
    return [(float(model.evaluate(ranks)), None, None) for ranks in AHEAD]


def _said(case: Case, ranks: int, told: Sequence[Told]) -> str:
    if not told:
        return "refused"
    real = true(case, ranks)[0]
    errors = np.array([step / real - 1 for step, _, _ in told])
    text = f"{ranks} ranks {np.median(errors):+.1%} (worst {np.abs(errors).max():.1%})"
    ends = [(low, high) for _, low, high in told if low is not None and high is not None]
    covered = sum(low <= real <= high for low, high in ends)
    return text + (f", {covered} of {len(ends)} intervals cover it" if ends else "")


def main() -> int:
    try:
        import extrap  # noqa: F401
    except ImportError:
        print("Extra-P is not here: pip install extrap, then run this again", file=sys.stderr)
        return 2
    for case in CASES:
        random = np.random.default_rng(1)
        drawn = [series(case, random) for _ in range(SERIES)]
        bare = [[Measured(m.ranks, m.step_s) for m in one] for one in drawn]
        told = {
            "with parts and network": [ours(one, case.network or case.reduce_s) for one in drawn],
            "with parts": [ours(one) for one in drawn],
            "steps alone": [ours(one) for one in bare],
            "Extra-P": [theirs(one) for one in drawn],
        }
        for name, found in told.items():
            given = [one for one in found if one]
            said = [_said(case, ranks, [one[i] for one in given]) for i, ranks in enumerate(AHEAD)]
            print(f"{case.name:38} {name:22} {len(given):3} of {SERIES}  {'; '.join(said)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
