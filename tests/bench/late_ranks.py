"""How often a run of equal ranks has one that stands out (analysis/topics/ranks.py): the tables of
docs/statistics.md. `python -m tests.bench.late_ranks`, a minute of one core."""

from __future__ import annotations

import numpy as np

from analysis.stats.intervals import Floats
from analysis.topics.ranks import ALPHA, LATER, p_alone

COUNTS = (4, 8, 16, 64, 256)
#: Standard deviations of the lateness, as shares of a step.
SPREADS = (0.01, 0.02, 0.05)
SCALE = 1.4826


def lateness(kind: str, count: int, numbers: np.random.Generator) -> Floats:
    """Of equal ranks, with a standard deviation of 1, a row per run."""
    runs = 20_000 if count < 256 else 1_000
    if kind == "normal":
        return numbers.standard_normal((runs, count))
    if kind == "t(5)":
        return numbers.standard_t(5, (runs, count)) / np.sqrt(5 / 3)
    steps = numbers.standard_normal((min(runs, 5_000), 10, count))
    waits = np.median(steps.max(axis=2, keepdims=True) - steps, axis=1)
    return -waits / waits.std(axis=1).mean()


def blamed(ready: Floats, least: float) -> float:
    """The share of runs with a rank that stands out; ``least``: the lateness that is too small."""
    behind = ready - np.median(ready, axis=1, keepdims=True)
    t = behind / (SCALE * np.median(np.abs(behind), axis=1, keepdims=True))
    count = ready.shape[1]
    late = (count * p_alone(t, count) < ALPHA) & (behind > least)
    return float(late.any(axis=1).mean())


def main() -> None:
    numbers = np.random.default_rng(1)
    for kind in ("normal", "waits", "t(5)"):
        ready = [lateness(kind, count, numbers) for count in COUNTS]
        print(kind, *(f"{blamed(own, 0):.1%}" for own in ready), sep=" | ")
        for spread in SPREADS:
            found = (f"{blamed(spread * own, LATER):.1%}" for own in ready)
            print(f"{kind}, sd {spread:.0%} of a step", *found, sep=" | ")


if __name__ == "__main__":
    main()
