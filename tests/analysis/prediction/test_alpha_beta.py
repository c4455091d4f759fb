"""Costs of an all-reduce against counting; alpha and beta against the links that made the times."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.prediction.alpha_beta import WORST, Timed, fit
from analysis.prediction.collectives import Link, ring

SIZES = [2**k for k in range(3, 25)]
EAGER, RENDEZVOUS = Link(20e-6, 8 / 10e9), Link(400e-6, 8 / 200e6)
BREAK = 2**15  # bytes of a message


@pytest.mark.parametrize(("n", "expected"), [(2, (2, 1e6)), (4, (6, 1.5e6)), (16, (30, 1.875e6))])
def test_a_ring_reduces_and_gathers_in_n_minus_1_messages_each(
    n: int, expected: tuple[int, float]
) -> None:
    assert ring(n, 1e6) == pytest.approx(expected)


def timed(
    noise: float, link: Link, small: Link | None = None, *, ranks: int = 2, seed: int = 0
) -> list[Timed]:
    """small: of messages below BREAK, where they have another one."""
    random = np.random.default_rng(seed)
    links = [small if small and size / ranks < BREAK else link for size in SIZES]
    return [
        Timed(ranks, size, tuple(ring(ranks, size).seconds(own) * random.lognormal(0, noise, 9)))
        for size, own in zip(SIZES, links, strict=True)
    ]


def test_the_fit_agrees_with_numpy_where_no_limit_is_met() -> None:
    points = timed(0.1, Link(1e-3, 1e-8))
    parts = np.array([ring(2, t.bytes)[:2] for t in points])
    times = np.array([np.median(t.seconds) for t in points])
    reference, *_ = np.linalg.lstsq(parts / times[:, None], np.ones(len(times)), rcond=None)
    assert fit(points).large[:2] == pytest.approx(reference, rel=1e-6)


def test_alpha_never_falls_below_zero() -> None:
    """A shaper lets a burst pass at once: the line through large sizes meets the axis below 0."""
    points = [
        Timed(2, size, (max(1e-6, size / 25e6 - 1.3e-3),)) for size in (65536, 131072, 2**20, 2**23)
    ]
    found = fit(points)
    assert found.large.alpha == 0 and found.worst > WORST


def test_one_line_stays_one() -> None:
    at = [fit(timed(0.05, RENDEZVOUS, seed=seed)).split for seed in range(40)]
    assert sum(place > 0 for place in at) <= 4
    exact = fit(timed(0.0, RENDEZVOUS))
    assert exact.split == 0 and exact.large[:2] == pytest.approx(RENDEZVOUS[:2])


def test_two_lines_are_parted_where_messages_change() -> None:
    """Of 8 ranks the array may be four times as large before its parts are."""
    exact = timed(0.0, RENDEZVOUS, EAGER)
    found = fit(exact)
    assert found.split == fit(timed(0.03, RENDEZVOUS, EAGER)).split == BREAK
    assert found.worst < WORST
    for more in timed(0.0, RENDEZVOUS, EAGER, ranks=8):
        assert found.seconds(8, more.bytes) == pytest.approx(np.median(more.seconds), rel=1e-6)
    assert fit(exact[10:17]).split == 0, "few sizes are one line"
