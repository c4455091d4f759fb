"""Costs of an all-reduce against counting; alpha and beta against the links that made the times."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.prediction.alpha_beta import Timed, fit, fit_segments, predict
from analysis.prediction.collectives import Link, ring

SIZES = [2**k for k in range(3, 25)]
EAGER, RENDEZVOUS = Link(20e-6, 8 / 10e9), Link(400e-6, 8 / 200e6)
BREAK = 2**15  # bytes of a message


def played_ring(n: int, size: float) -> tuple[int, float]:
    """Messages and bytes on the busiest rank, by playing reduce-scatter and all-gather
    on chunks that know whose summands they hold."""
    held = [[{rank} for _ in range(n)] for rank in range(n)]  # held[rank][chunk] = summands
    messages, moved = 0, 0.0
    for step in range(2 * (n - 1)):
        shift = step if step < n - 1 else step - n  # gathering begins at the complete chunk
        sent = [set(held[r][(r - shift) % n]) for r in range(n)]
        for r in range(n):
            chunk = (r - 1 - shift) % n
            if step < n - 1:
                held[r][chunk] |= sent[r - 1]
            else:
                held[r][chunk] = sent[r - 1]
        messages += 1
        moved += size / n
    assert all(chunk == set(range(n)) for rank in held for chunk in rank)
    return messages, moved


@pytest.mark.parametrize("n", [2, 3, 4, 7, 16])
def test_ring_is_what_a_ring_does(n: int) -> None:
    assert ring(n, 1e6) == pytest.approx(played_ring(n, 1e6))


def test_the_time_of_a_large_ring_is_mostly_latency() -> None:
    """64 MiB, 12.5 GB/s, 10 us: 11.8, 20.9 and 92.6 ms at 64, 512 and 4,096 ranks."""
    link = Link(10e-6, 1 / 12.5e9)
    found = [1e3 * ring(n, 64 * 2**20).seconds(link) for n in (64, 512, 4096)]
    assert found == pytest.approx([11.8, 20.9, 92.6], rel=0.01)


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


def split(ranks: int, noise: float, seed: int = 0, *, one: bool = False) -> list[Timed]:
    random = np.random.default_rng(seed)
    links = [RENDEZVOUS if one or size / ranks >= BREAK else EAGER for size in SIZES]
    return [
        Timed(ranks, size, tuple(ring(ranks, size).seconds(link) * random.lognormal(0, noise, 9)))
        for size, link in zip(SIZES, links, strict=True)
    ]


def test_one_line_stays_one() -> None:
    at = [fit_segments(split(2, 0.05, seed, one=True), ring).split for seed in range(40)]
    assert sum(place > 0 for place in at) <= 4
    exact = fit_segments(split(2, 0.0, one=True), ring)
    assert exact.split == 0 and exact.large.link[:2] == pytest.approx(RENDEZVOUS[:2])


@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_two_lines_are_parted_where_they_change(noise: float) -> None:
    found = fit_segments(split(2, noise), ring)
    assert found.split == BREAK
    assert found.small.link.alpha == pytest.approx(EAGER.alpha, rel=0.1)
    assert found.large.link.beta == pytest.approx(RENDEZVOUS.beta, rel=0.1)
    assert found.is_usable


def test_more_ranks_change_at_the_same_message_not_the_same_size() -> None:
    """Of 8 ranks the array may be four times as large before its parts are."""
    found = fit_segments(split(2, 0.0), ring)
    errors = {f.bytes: f.error for f in predict(found, split(8, 0.0))}
    assert max(map(abs, errors.values())) < 1e-6


def test_few_sizes_are_one_line() -> None:
    found = fit_segments(split(2, 0.0)[10:17], ring)
    assert found.split == 0
