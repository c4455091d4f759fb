"""How often intervals cover and tests err: `python -m tests.bench.coverage` prints the table
of docs/statistics.md, from the functions that the report uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from analysis.stats.differences import Welch, equivalence, family, welch
from analysis.stats.intervals import Floats, Moments, share, t_intervals
from analysis.stats.levels import ALPHA, LEVEL, POWER
from analysis.stats.power import further_runs, welch_power
from analysis.stats.survival import median_time

RUNS = (2, 3, 5, 10)
REPEATS = 40_000
SEED = 1
Generator = np.random.Generator
Simulate = Callable[[Generator, int, int], float]  # of n runs per arm, so many times


class Case(NamedTuple):
    """One row of the table. ``within``: the rate that is asked for; where it is not met, what
    the report does about it."""

    kind: str
    situation: str
    within: tuple[float, float] | str
    rate: Simulate
    fewest: int = 2  # runs; below, the kind is not printed


def draw(rng: Generator, shape: Sequence[int], n: int, sd: Floats | float = 1.0) -> Moments:
    """Moments of sets of ``n`` normal runs of mean 0."""
    runs = rng.normal(size=(*shape, n)) * np.asarray(sd, float)[..., None]
    return Moments(np.full(shape, float(n)), runs.mean(-1), runs.std(-1, ddof=1))


def _covered(low: Floats, high: Floats, truth: float) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


def _mean(sample: Callable[[Generator, tuple[int, int]], Floats], truth: float) -> Simulate:
    def rate(rng: Generator, n: int, repeats: int) -> float:
        runs = sample(rng, (repeats, n))
        found = t_intervals(Moments(np.full(repeats, n), runs.mean(1), runs.std(1, ddof=1)))
        return _covered(found["low"].to_numpy(), found["high"].to_numpy(), truth)

    return rate


def _bootstrap(rng: Generator, n: int, repeats: int) -> float:
    """The percentile interval of 999 resamples of normal runs."""
    runs = rng.normal(size=(repeats // 20, n))
    picked = rng.integers(n, size=(len(runs), 999, n))
    means = np.take_along_axis(runs[:, None, :], picked, 2).mean(2)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    return _covered(low, high, 0)


def _share(p: float) -> Simulate:
    def rate(rng: Generator, n: int, repeats: int) -> float:
        found = [share(k, n) for k in range(n + 1)]
        k = rng.binomial(n, p, repeats)
        low, high = (np.array([getattr(of, end) for of in found])[k] for end in ("low", "high"))
        return _covered(low, high, p)

    return rate


def _median(rng: Generator, n: int, repeats: int) -> float:
    times = rng.exponential(size=(repeats // 20, n))
    found = [median_time([*row], [False] * n) for row in times]
    low, high = (np.array([getattr(of, end) for of in found]) for end in ("low", "high"))
    return _covered(low, high, float(np.log(2)))


def _difference(ratio: float, times: float = 1, *, own_df: bool = False) -> Simulate:
    """False positives; the arm scatters ``ratio`` times as much, the reference has ``times`` as
    many runs. ``own_df``: always Welch's degrees of freedom."""

    def rate(rng: Generator, n: int, repeats: int) -> float:
        arm, reference = draw(rng, [repeats], n, ratio), draw(rng, [repeats], round(times * n))
        found = welch(arm, reference)
        if not own_df:
            return float((found.p < ALPHA).mean())
        parts = [of.sd**2 / of.n for of in (arm, reference)]
        df = sum(parts) ** 2 / sum(
            part**2 / (of.n - 1) for part, of in zip(parts, (arm, reference), strict=True)
        )
        return float((2 * special.stdtr(df, -abs(found.value) / found.error) < ALPHA).mean())

    return rate


def _skewed(rng: Generator, n: int, repeats: int) -> float:
    """False positives between shares of equal mean, one as close to 1 as its spread allows."""
    runs = [rng.beta(a, b, (repeats, n)) for a, b in ((99, 1), (990, 10))]
    sides = [Moments(np.full(repeats, n), of.mean(1), of.std(1, ddof=1)) for of in runs]
    return float((welch(sides[0], sides[1]).p < ALPHA).mean())


def _family(
    arms: int, sds: Callable[[int], Floats], reference: float = 1.0, *, own_df: bool = False
) -> Simulate:
    """Families with a claim of a difference, where there is none."""

    def rate(rng: Generator, n: int, repeats: int) -> float:
        sides = draw(rng, [repeats, arms], n, sds(arms)), draw(rng, [repeats, 1], n, reference)
        if own_df:
            return float((arms * welch(*sides).p < ALPHA).any(-1).mean())
        return float(_claimed(family(*sides, arms)).any(-1).mean())

    return rate


def _claimed(found: Welch) -> NDArray[np.bool_]:
    return (found.low > 0) | (found.high < 0)


def _holm(p: Floats) -> Floats:
    """Step-down adjusted p values (Holm 1979), over the last axis."""
    order = np.argsort(p, axis=-1)
    steps = np.arange(p.shape[-1], 0, -1) * np.take_along_axis(p, order, -1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(steps, axis=-1), -1)
    return adjusted


def _contradicted(arms: int, *, by_holm: bool) -> Simulate:
    """Families with a claim beside whose printed interval contains 0; half of the arms differ from
    the reference by three sd."""

    def rate(rng: Generator, n: int, repeats: int) -> float:
        arm, reference = draw(rng, [repeats, arms], n), draw(rng, [repeats, 1], n)
        found = family(arm._replace(mean=arm.mean + 3.0 * (np.arange(arms) % 2)), reference, arms)
        claimed = _holm(found.p) < ALPHA if by_holm else _claimed(found)
        return float((claimed & ~_claimed(found)).any(-1).mean())

    return rate


def _losses(rows: int, *, corrected: bool) -> Simulate:
    """Sweeps without a loss in which one of several changes is called a loss."""

    def rate(rng: Generator, n: int, repeats: int) -> float:
        sides = draw(rng, [repeats, rows], n), draw(rng, [repeats, rows], n)
        found = family(*sides, rows) if corrected else welch(*sides)
        return float((found.high < 0).any(-1).mean())

    return rate


def _lost_runs(conditions: int, share: float, *, corrected: bool) -> Simulate:
    """Gates that fail by lost runs, whose rate did not change."""
    level = ALPHA / (3 * conditions) if corrected else ALPHA

    def rate(rng: Generator, n: int, repeats: int) -> float:
        then, now = rng.binomial(n, share, (2, repeats, conditions))
        p = stats.hypergeom.sf(now - 1, 2 * n, then + now, n)
        return float((p < level).any(-1).mean())

    return rate


def _pairs(arms: int, sds: Callable[[int], Floats]) -> Simulate:
    def rate(rng: Generator, n: int, repeats: int) -> float:
        every = draw(rng, [repeats, arms], n, sds(arms))
        first, second = np.triu_indices(arms, 1)
        sides = [Moments(*(part[:, index] for part in every)) for index in (first, second)]
        found = family(sides[0], sides[1], len(first))
        return float(_claimed(found).any(-1).mean())

    return rate


def _equal(ratio: float) -> Simulate:
    """False claims of equality, of a true difference of just the margin, 10 sd of a run."""

    def rate(rng: Generator, n: int, repeats: int) -> float:
        arm, reference = draw(rng, [repeats], n, ratio), draw(rng, [repeats], n)
        shifted = arm._replace(mean=arm.mean + 10)
        return float((equivalence(shifted, reference, 10) < ALPHA).mean())

    return rate


def _enough(ratio: float) -> Simulate:
    """Pilots of n runs after which the further runs give the power that they promise."""

    def rate(rng: Generator, n: int, repeats: int) -> float:
        arm, reference = (draw(rng, [repeats // 20], n, sd) for sd in (ratio, 1.0))
        runs = n + further_runs(arm, reference, margin=2.0).runs
        power = welch_power(2.0, ratio, 1.0, np.minimum(runs, 10_000))
        return float((power >= POWER - 1e-6).mean())

    return rate


def _equal_sds(arms: int) -> Floats:
    return np.ones(arms)


def _half(arms: int) -> Floats:
    return np.where(np.arange(arms) % 2, 1.0, 3.0)


def _all(arms: int) -> Floats:
    return np.full(arms, 3.0)


def _ladder(arms: int) -> Floats:
    return np.linspace(1, 3, arms)


_T, _COVER = (0.93, 0.97), (0.93, 1.0)
_SINGLE, _TOGETHER = (0.0, 0.065), (0.0, 0.05)
CASES = (
    Case("mean, t", "normal", _T, _mean(lambda rng, size: rng.normal(size=size), 0)),
    Case("mean, t", "shares of 0.99 ± 0.003", _COVER,
         _mean(lambda rng, size: rng.beta(990, 10, size), 0.99)),
    Case("mean, t, cut at 1", "shares of 0.99 ± 0.01", "has a caution",
         _mean(lambda rng, size: rng.beta(99, 1, size), 0.99)),
    Case("mean, bootstrap", "normal", "not used", _bootstrap),
    Case("share, exact", "one in five", _COVER, _share(0.2)),
    Case("median time", "exponential", _COVER, _median, 6),
    *(Case("difference, Welch", f"sd {ratio} : 1", _SINGLE, _difference(ratio))
      for ratio in (1, 3)),
    Case("difference, Welch", "shares of 0.99 ± 0.01 and ± 0.003", "has a caution", _skewed),
    *(Case("difference, n and 2n runs", f"sd {ratio} : 1", _SINGLE, _difference(ratio, 2))
      for ratio in (1, 3)),
    Case("the same, Welch's df", "sd 3 : 1", "not used", _difference(3, 2, own_df=True)),
    *(Case(f"family of {arms}", name, _TOGETHER, _family(arms, sds))
      for arms in (3, 11)
      for name, sds in (("equal sd", _equal_sds), ("half of the arms 3 : 1", _half),
                        ("all arms 3 : 1", _all))),
    Case("the same, Welch's df", "all of 11 arms 3 : 1", "not used",
         _family(11, _all, own_df=True)),
    Case("family of 11", "reference 3 : 1", _TOGETHER, _family(11, _equal_sds, 3.0)),
    *(Case(f"all pairs of {arms}", name, _TOGETHER, _pairs(arms, sds))
      for arms in (4, 12) for name, sds in (("equal sd", _equal_sds), ("sd 1 to 3", _ladder))),
    Case("a claim beside 0 in its interval", "Holm decides, 11 arms", "not used",
         _contradicted(11, by_holm=True)),
    Case("a claim beside 0 in its interval", "the interval decides", (0.0, 0.0),
         _contradicted(11, by_holm=False)),
    Case("a loss in 12 changes without one", "each at 95 %", "not used",
         _losses(12, corrected=False)),
    Case("a loss in 12 changes without one", "family of 12", _TOGETHER,
         _losses(12, corrected=True)),
    Case("gate, 20 conditions lose one in three", "each at 5 %", "not used",
         _lost_runs(20, 1 / 3, corrected=False)),
    Case("gate, 20 conditions lose one in three", "family of 60", _TOGETHER,
         _lost_runs(20, 1 / 3, corrected=True)),
    *(Case("equal to within a margin", f"sd {ratio} : 1", _SINGLE, _equal(ratio))
      for ratio in (1, 3)),
    *(Case("further runs suffice", f"sd {ratio} : 1", (0.8, 1.0), _enough(ratio))
      for ratio in (1, 3)),
)  # fmt: skip


def rates(case: Case, repeats: int, runs: Sequence[int] = RUNS) -> dict[int, float]:
    """Rate by number of runs, each from its own fixed seed."""
    return {
        n: case.rate(np.random.default_rng([SEED, n]), n, repeats) for n in runs if n >= case.fewest
    }


def table(repeats: int = REPEATS) -> str:
    """The rows as Markdown."""
    head = ["kind", "situation", "asked for", *(f"n = {n}" for n in RUNS)]
    lines = [head, [":---", ":---", ":---", *["---:"] * len(RUNS)]]
    for case in CASES:
        found = rates(case, repeats)
        cells = [f"{100 * found[n]:.1f} %" if n in found else "not printed" for n in RUNS]
        lines.append([case.kind, case.situation, _asked(case.within), *cells])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _asked(within: tuple[float, float] | str) -> str:
    if isinstance(within, str):
        return within
    low, high = (f"{100 * end:g} %" for end in within)
    if within[0] == 0:
        return f"at most {high}"
    return f"at least {low}" if within[1] == 1 else f"{low} to {high}"


if __name__ == "__main__":
    print(table(), end="")
