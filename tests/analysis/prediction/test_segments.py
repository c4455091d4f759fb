from __future__ import annotations

import numpy as np
import pytest

from analysis.prediction.alpha_beta import Timed, fit_segments, predict
from analysis.prediction.collectives import Link, ring

SIZES = [2**k for k in range(3, 25)]
EAGER, RENDEZVOUS = Link(20e-6, 8 / 10e9), Link(400e-6, 8 / 200e6)
BREAK = 2**15  # bytes of a message


def timed(ranks: int, noise: float, seed: int = 0, *, one: bool = False) -> list[Timed]:
    random = np.random.default_rng(seed)
    links = [RENDEZVOUS if one or size / ranks >= BREAK else EAGER for size in SIZES]
    return [
        Timed(ranks, size, tuple(ring(ranks, size).seconds(link) * random.lognormal(0, noise, 9)))
        for size, link in zip(SIZES, links, strict=True)
    ]


def test_one_line_stays_one() -> None:
    split = [fit_segments(timed(2, 0.05, seed, one=True), ring).split for seed in range(40)]
    assert sum(at > 0 for at in split) <= 4
    exact = fit_segments(timed(2, 0.0, one=True), ring)
    assert exact.split == 0 and exact.large.link[:2] == pytest.approx(RENDEZVOUS[:2])


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_two_lines_are_parted_where_they_change(noise: float) -> None:
    found = fit_segments(timed(2, noise), ring)
    assert found.split == BREAK
    assert found.small.link.alpha == pytest.approx(EAGER.alpha, rel=0.1)
    assert found.large.link.beta == pytest.approx(RENDEZVOUS.beta, rel=0.1)
    assert found.is_usable


def test_more_ranks_change_at_the_same_message_not_the_same_size() -> None:
    """Of 8 ranks the array may be four times as large before its parts are."""
    found = fit_segments(timed(2, 0.0), ring)
    errors = {f.bytes: f.error for f in predict(found, timed(8, 0.0))}
    assert max(map(abs, errors.values())) < 1e-6


def test_few_sizes_are_one_line() -> None:
    found = fit_segments(timed(2, 0.0)[10:17], ring)
    assert found.split == 0
