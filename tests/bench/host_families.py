"""How often the table of hosts blames one of several sound hosts, and finds a slow one.

    python -m tests.bench.host_families

prints the table of docs/statistics.md (MINUTES).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from analysis.topics.scaling import nodes

#: Of each cell of the table.
FAMILIES = 2_000
SLOW = 1.15


class Design(NamedTuple):
    hosts: int
    each: int  # hosts per run
    fewest: int  # runs of a condition
    most: int
    pool: int  # hosts that a condition draws from
    conditions: int


#: Of sweeps in which each condition may be run on any host, and on a few.
EVERYWHERE = [
    Design(hosts, each, fewest, most, hosts, conditions)
    for hosts, each in ((4, 1), (6, 2), (8, 3), (8, 4))
    for fewest, most in ((3, 4), (5, 12))
    for conditions in (2, 4, 10)
]
FEW_EACH = [
    Design(hosts, each, 3, 12, each + 2, conditions)
    for hosts, each in ((4, 1), (4, 2), (6, 2), (8, 1), (8, 3))
    for conditions in (2, 4, 10)
]
MANY_SMALL = [
    Design(hosts, each, 3, 4, hosts, 30) for hosts, each in ((4, 1), (6, 2), (8, 3), (8, 4))
]
DESIGNS = {"any host": EVERYWHERE, "few hosts": FEW_EACH, "30 small ones": MANY_SMALL}
#: Standard deviations of the logarithm: of the conditions with the fewest runs, and of the others.
SPREADS = {
    "0.03 everywhere": (0.03, 0.03),
    "0.10 and 0.005": (0.10, 0.005),
    "0.005 and 0.10": (0.005, 0.10),
    "0.05 and 0.01": (0.05, 0.01),
}


def sweep(
    design: Design, spread: tuple[float, float], random: np.random.Generator, slower: float = 1.0
) -> pd.DataFrame:
    """What the table reads of runs. slower: factor of host n0, in all runs that it is in."""
    count = random.integers(design.fewest, design.most + 1, design.conditions)
    few = np.argsort(np.argsort(count, kind="stable")) < design.conditions // 2
    rows = []
    for condition, runs in enumerate(count):
        pool = random.choice(design.hosts, design.pool, replace=False)
        for _ in range(runs):
            hosts = [f"n{n}" for n in sorted(random.choice(pool, design.each, replace=False))]
            error = random.normal(0, spread[0] if few[condition] else spread[1])
            step_s = np.exp(condition + error) * (slower if "n0" in hosts else 1)
            rows.append((f"c{condition}", tuple(hosts), hosts[0], step_s))
    frame = pd.DataFrame(rows, columns=["condition", "hosts", "first_host", "step_s"])
    return frame.assign(
        status="completed", oversubscribed=False, nodes=design.each, device="Test CPU"
    )


def blamed(runs: pd.DataFrame) -> set[str]:
    """Hosts that differ significantly, slower or faster."""
    data = nodes.table(runs).data
    return {*data.loc[(data["p_holm"] < nodes.ALPHA).fillna(False), "host"].explode()}


def share_of_errors(designs: Sequence[Design], spread: tuple[float, float], repeats: int) -> float:
    """Of families of sound hosts, those in which one is blamed."""
    random = np.random.default_rng(1)
    return float(np.mean([bool(blamed(sweep(design, spread, random)))
                          for design in designs for _ in range(repeats)]))  # fmt: skip


def share_found(designs: Sequence[Design], spread: tuple[float, float], repeats: int) -> float:
    """Of sweeps with one slow host, those in which it is blamed."""
    random = np.random.default_rng(2)
    return float(np.mean(["n0" in blamed(sweep(design, spread, random, SLOW))
                          for design in designs for _ in range(repeats)]))  # fmt: skip


def table() -> Iterator[str]:
    """Rows of Markdown."""
    yield f"| sd of conditions | | {' | '.join(DESIGNS)} |"
    yield f"| :--- | :--- | {' | '.join('---:' for _ in DESIGNS)} |"
    for what, share, spreads in (
        ("sound hosts: one is blamed", share_of_errors, SPREADS.items()),
        ("one host 15 % slower: it is found", share_found, [*SPREADS.items()][:1]),
    ):
        for name, spread in spreads:
            cells = [share(designs, spread, FAMILIES // len(designs))
                     for designs in DESIGNS.values()]  # fmt: skip
            yield f"| {name} | {what} | {' | '.join(f'{100 * cell:.1f} %' for cell in cells)} |"


if __name__ == "__main__":
    for line in table():
        print(line, flush=True)
