"""How often intervals of a ratio hold the truth where pairs share nodes, on simulated networks.

    python -m tests.bench.ratios

prints the table of docs/interconnect.md (two minutes).
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from analysis.stats.ratios import ratio
from analysis.table import Estimate

TRUE = 0.8
Samples = dict[tuple[str, str], tuple[float, ...]]


def network(
    count: int, spread: float, noise: float, random: np.random.Generator, alike: float = 0.5
) -> tuple[Samples, Samples]:
    """Rates now and then. spread: sd of what a node's sending and receiving changed by, as a share;
    alike: correlation of the two. noise: of one pair beside its nodes."""
    both = random.multivariate_normal([0, 0], [[1, alike], [alike, 1]], count) * spread
    pairs = np.array(list(permutations(range(count), 2)))
    changed = both[pairs[:, 0], 0] + both[pairs[:, 1], 1] + random.normal(0, noise, len(pairs))
    names = [(f"n{a:02}", f"n{b:02}") for a, b in pairs]
    rates = (TRUE * 1e8 * np.exp(changed)).tolist()
    return {p: (r,) for p, r in zip(names, rates, strict=True)}, dict.fromkeys(names, (1e8,))


def taken_for_independent(now: Samples, then: Samples, random: np.random.Generator) -> bool:
    """Whether a bootstrap over pairs, the usual mistake, holds the truth."""
    logs = np.log([np.median(now[p]) / np.median(then[p]) for p in now])
    drawn = np.median(random.choice(logs, (300, len(logs))), axis=1)
    low, high = np.exp(np.percentile(drawn, (2.5, 97.5)))
    return bool(low <= TRUE <= high)


def holds(found: Estimate | None) -> bool:
    assert found is not None and found.low is not None and found.high is not None
    return found.low <= TRUE <= found.high


def table(trials: int = 1000) -> str:
    """Coverage by number of nodes: of the interval of ratio(), and of one over pairs."""
    lines = ["| nodes | deleting nodes | over pairs |", "|---:|---:|---:|"]
    for count in (3, 4, 8, 16, 32):
        random = np.random.default_rng(count)
        networks = [network(count, 0.03, 0.01, random) for _ in range(trials)]
        held = sum(holds(ratio(*one)) for one in networks) / trials
        over_pairs = sum(taken_for_independent(*one, random) for one in networks) / trials
        lines.append(f"| {count} | {held:.1%} | {over_pairs:.1%} |".replace("%", " %"))
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
