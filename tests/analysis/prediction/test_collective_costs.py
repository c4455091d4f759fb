"""Formulas against counting: every message of the algorithm is played through."""

from __future__ import annotations

import pytest

from analysis.prediction.collectives import (
    Link,
    bracket,
    double_tree,
    halving_doubling,
    hierarchical,
    recursive_doubling,
    ring,
)


def played_ring(n: int, size: float) -> tuple[int, float, float]:
    """Messages, bytes and additions on the busiest rank, by playing reduce-scatter and all-gather
    on chunks that know whose summands they hold."""
    held = [[{rank} for _ in range(n)] for rank in range(n)]  # held[rank][chunk] = summands
    messages, moved, added = 0, 0.0, 0.0
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
        added += size / n if step < n - 1 else 0
    assert all(chunk == set(range(n)) for rank in held for chunk in rank)
    return messages, moved, added


@pytest.mark.parametrize("n", [2, 3, 4, 7, 16])
def test_ring_is_what_a_ring_does(n: int) -> None:
    assert ring(n, 1e6) == pytest.approx(played_ring(n, 1e6))


def test_recursive_doubling_sends_the_whole_array_log2_n_times() -> None:
    assert recursive_doubling(8, 1000) == (3, 3000, 3000)
    with pytest.raises(ValueError, match="power of two"):
        recursive_doubling(6, 1000)


def test_halving_doubling_moves_as_much_as_a_ring_in_fewer_messages() -> None:
    for n in (2, 4, 64):
        halves, around = halving_doubling(n, 1e6), ring(n, 1e6)
        assert halves[1:] == pytest.approx(around[1:])
        assert halves.messages <= around.messages
    # played: n/2 + n/4 + ... + 1 parts out, and as many back
    assert halving_doubling(8, 8.0).bytes == 2 * (4 + 2 + 1)


def test_the_time_of_a_large_ring_is_mostly_latency() -> None:
    """64 MiB, 12.5 GB/s, 10 us: 11.8, 20.9 and 92.6 ms at 64, 512 and 4,096 ranks."""
    link = Link(10e-6, 1 / 12.5e9)
    found = [1e3 * ring(n, 64 * 2**20).seconds(link) for n in (64, 512, 4096)]
    assert found == pytest.approx([11.8, 20.9, 92.6], rel=0.01)
    assert 1e3 * double_tree(4096, 64 * 2**20).seconds(link) == pytest.approx(11, rel=0.05)


def test_hierarchy_of_eight_per_node() -> None:
    """150 GB/s inside, one 12.5 GB/s port per rank: 2.1, 3.4 and 12.4 ms."""
    inside, outside = Link(10e-6, 1 / 150e9), Link(10e-6, 1 / 12.5e9)
    found = [1e3 * hierarchical(n // 8, 8, 64 * 2**20, inside, outside) for n in (64, 512, 4096)]
    assert found == pytest.approx([2.1, 3.4, 12.4], rel=0.07)
    alone = hierarchical(1, 8, 1e6, inside, outside)
    assert alone == pytest.approx(ring(8, 1e6).seconds(inside))


#: Sergeev and Del Balso 2018 and Horovod's documentation: 128 servers with 4 Pascal GPUs each and
#: 25 Gbit/s RoCE: efficiency at 512 GPUs. Images/s of one GPU, millions of parameters.
PUBLISHED = {
    "Inception V3": (0.90, 142, 23.8),
    "ResNet-101": (0.90, 138, 44.5),
    "VGG-16": (0.68, 154, 138.4),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_efficiencies_lie_within_the_bracket(model: str) -> None:
    efficiency, images_s, parameters = PUBLISHED[model]
    step = 64 / images_s
    line = 0.9 * 25e9 / 8  # bytes per second; VGG needs less to be contained: 75 % of the line
    reduce = ring(512, 4e6 * parameters).seconds(Link(0.0, 1 / line))
    low, high = bracket(step, 2 / 3 * step, reduce)
    assert low <= efficiency <= high + 0.005, (low, high)


def test_goyals_network_would_hide_all_communication() -> None:
    """ResNet-50, 32 x 8 P100, 50 GbE: 100 MB of gradients within 120 ms of backward pass, so what
    was lost, about a tenth, is not bandwidth."""
    reduce = ring(32, 100e6).seconds(Link(0.0, 8 / 50e9))
    assert 0.030 < reduce < 0.055
    assert bracket(0.18, 0.12, reduce).full == 1.0


def test_times_that_cannot_be() -> None:
    for times in ((0.0, 0.0, 1.0), (1.0, 2.0, 1.0), (1.0, 0.5, -1.0)):
        with pytest.raises(ValueError, match="expected"):
            bracket(*times)
