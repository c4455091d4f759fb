"""Formulas against counting: every message of the algorithm is played through."""

from __future__ import annotations

import pytest

from analysis.prediction.collectives import Link, ring


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
