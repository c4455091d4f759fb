from __future__ import annotations

import numpy as np
import pytest

from analysis.prediction.alpha_beta import Timed, fit
from analysis.prediction.collectives import Link, ring

SIZES = [2**k for k in range(3, 25)]


def timed(ranks: int, link: Link, noise: float, seed: int = 0) -> list[Timed]:
    random = np.random.default_rng(seed)
    return [
        Timed(ranks, size, tuple(ring(ranks, size).seconds(link)
                                 * random.lognormal(0, noise, 9)))
        for size in SIZES
    ]  # fmt: skip


def test_exact_times_give_alpha_and_beta_back() -> None:
    link = Link(30e-6, 8 / 200e6)
    found = fit(timed(2, link, 0.0), ring)
    assert found.link[:2] == pytest.approx(link[:2], rel=1e-9)
    assert found.worst < 1e-9


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    link, held = Link(30e-6, 8 / 200e6), 0
    for seed in range(60):
        found = fit(timed(2, link, 0.05, seed), ring, seed)
        low, high = found.beta_interval
        held += low <= link.beta <= high
        assert found.link.alpha == pytest.approx(link.alpha, rel=0.1)
    assert 48 <= held <= 60


def test_the_fit_agrees_with_numpy_where_no_limit_is_met() -> None:
    points = timed(2, Link(1e-3, 1e-8), 0.1)
    parts = np.array([ring(2, t.bytes)[:2] for t in points])
    times = np.array([t.median for t in points])
    reference, *_ = np.linalg.lstsq(parts / times[:, None], np.ones(len(times)), rcond=None)
    assert fit(points, ring).link[:2] == pytest.approx(reference, rel=1e-6)


def test_alpha_never_falls_below_zero() -> None:
    """A shaper lets a burst pass at once: the line through large sizes meets the axis below 0."""
    points = [
        Timed(2, size, (max(1e-6, size / 25e6 - 1.3e-3),)) for size in (65536, 131072, 2**20, 2**23)
    ]
    found = fit(points, ring)
    assert found.link.alpha == 0
    assert found.worst > 0.3


def test_one_size_is_no_line() -> None:
    with pytest.raises(ValueError, match="two or more"):
        fit(timed(2, Link(1e-5, 1e-8), 0.0)[:1], ring)
    with pytest.raises(ValueError, match="0 s or less"):
        fit([Timed(2, 8, (0.0,)), Timed(2, 16, (1.0,))], ring)


def test_an_interval_of_a_prediction_holds_its_line() -> None:
    found = fit(timed(2, Link(30e-6, 8 / 200e6), 0.05), ring)
    low, high = found.interval(4, 2**20)
    assert low <= found.seconds(4, 2**20) <= high
