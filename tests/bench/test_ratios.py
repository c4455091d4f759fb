"""How often intervals of ratios hold the truth, where pairs share their nodes and where not."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.ratios import ratio
from tests.bench.ratios import TRUE, holds, network, taken_for_independent


@pytest.mark.parametrize(
    ("counts", "spread", "noise", "alike", "trials"),
    [
        ((3, 4, 8, 16), 0.03, 0.01, 0.5, 400),
        ((2, 4, 8), 0.0, 0.03, 0.5, 300),  # no node has an effect of its own
        *(pytest.param((3, 4, 5, 8, 16, 32), 0.03, 0.01, alike, 1500, marks=pytest.mark.slow)
          for alike in (0.0, 1.0)),
    ],
)  # fmt: skip
def test_intervals_hold_the_truth_where_pairs_share_nodes(
    counts: tuple[int, ...], spread: float, noise: float, alike: float, trials: int
) -> None:
    for count in counts:
        random = np.random.default_rng(count)
        networks = [network(count, spread, noise, random, alike) for _ in range(trials)]
        assert sum(holds(ratio(*one)) for one in networks) >= 0.93 * trials, count
        if spread:  # else this network has no node effects and proves nothing
            assert sum(taken_for_independent(*one, random) for one in networks[:100]) <= 85


@pytest.mark.parametrize("partners", [3, 5, 7, 15])
def test_the_side_of_one_node_varies_with_its_partners(partners: int) -> None:
    random, trials, held = np.random.default_rng(partners), 400, 0
    for _ in range(trials):
        changed = TRUE * random.lognormal(0, 0.03, partners)
        now = {("a", f"n{i:02}"): (1e8 * c,) for i, c in enumerate(changed)}
        held += holds(ratio(now, dict.fromkeys(now, (1e8,))))
    assert held >= 0.93 * trials
