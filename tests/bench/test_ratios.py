"""How often intervals of ratios hold the truth, where pairs share their nodes and where not."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.stats.ratios import ratio
from tests.bench.ratios import TRUE, holds, network, taken_for_independent


@pytest.mark.parametrize("count", [3, 4, 8, 16])
def test_intervals_hold_the_truth_where_pairs_share_nodes(count: int) -> None:
    random, trials = np.random.default_rng(count), 400
    networks = [network(count, 0.03, 0.01, random) for _ in range(trials)]
    assert sum(holds(ratio(*one)) for one in networks) >= 0.93 * trials
    wrong = sum(taken_for_independent(*one, random) for one in networks[:100])
    assert wrong <= 85, "else this network has no node effects and proves nothing"


@pytest.mark.slow
@pytest.mark.parametrize("alike", [0.0, 1.0])
@pytest.mark.parametrize("count", [3, 4, 5, 8, 16, 32])
def test_more_networks(count: int, alike: float) -> None:
    random, trials = np.random.default_rng(count), 2000 if count < 32 else 1000
    held = sum(holds(ratio(*network(count, 0.03, 0.01, random, alike))) for _ in range(trials))
    assert held >= 0.93 * trials


@pytest.mark.parametrize("count", [2, 4, 8])
def test_without_node_effects_the_interval_holds_too(count: int) -> None:
    random, trials = np.random.default_rng(count), 300
    held = sum(holds(ratio(*network(count, 0.0, 0.03, random))) for _ in range(trials))
    assert held >= 0.93 * trials


@pytest.mark.parametrize("partners", [3, 5, 7, 15])
def test_the_side_of_one_node_varies_with_its_partners(partners: int) -> None:
    random, trials, held = np.random.default_rng(partners), 400, 0
    for _ in range(trials):
        changed = TRUE * random.lognormal(0, 0.03, partners)
        now = {("a", f"n{i:02}"): (1e8 * c,) for i, c in enumerate(changed)}
        held += holds(ratio(now, dict.fromkeys(now, (1e8,))))
    assert held >= 0.93 * trials
