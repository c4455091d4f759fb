"""Two ranks with batch-norm statistics of their own become one model, which evaluates as one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PROGRAM = Path(__file__).parent / "programs" / "statistics.py"


@pytest.mark.ranks2
def test_statistics_are_pooled_and_evaluation_is_then_the_same(
    start_ranks: Any, data_root: Path
) -> None:
    """The law of total variance, against samples that have each rank's moments exactly."""
    ranks = [json.loads(text) for text in start_ranks([str(PROGRAM), data_root], 2)]
    for near_or_far in range(2):
        pooled_like_samples([rank[near_or_far] for rank in ranks])
    first, second = (rank[0] for rank in ranks)
    assert first["own_before"] != second["own_before"]
    assert first["own_after"] == second["own_after"]
    assert first["together_after"] == second["together_after"]
    loss, accuracy, images = first["together_after"]
    assert loss == pytest.approx(first["own_after"][0], rel=1e-6)
    assert [accuracy, images] == [first["own_after"][1], 360]
    assert [rank[2] for rank in ranks] == [len(os.sched_getaffinity(0)) == 1] * 2, "oversubscribed"


def pooled_like_samples(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["after"] == ranks[1]["after"], "bit for bit"
    assert len(ranks[0]["after"]) == 3
    for layer, (mean, variance) in enumerate(ranks[0]["after"]):
        halves = [two_samples(*rank["before"][layer]) for rank in ranks]
        both = np.concatenate(halves)
        np.testing.assert_allclose(mean, both.mean(axis=0), rtol=1e-6, atol=1e-8)
        # fp32 at 1000 leaves steps of 6e-5 in the means
        np.testing.assert_allclose(variance, both.var(axis=0), atol=2e-4)
        assert not np.allclose(mean, halves[0].mean(axis=0), rtol=1e-6), "there was a difference"


def two_samples(mean: list[float], variance: list[float]) -> np.ndarray:
    """Two samples per channel, [2, channels], whose mean and (biased) variance are those given."""
    spread = np.sqrt(np.asarray(variance, np.float64))
    return np.stack([np.asarray(mean) - spread, np.asarray(mean) + spread])
