from __future__ import annotations

import pytest

from train.interconnect.collectives.measure import foreseen
from train.interconnect.collectives.payload import LEAST, MOST, calls, sizes, whole
from train.interconnect.collectives.record import Point, factor, must_send


def test_sizes_are_powers_of_two_from_eight_bytes() -> None:
    assert sizes(64) == (8, 16, 32, 64)
    assert sizes(100) == (8, 16, 32, 64)
    assert sizes(64 * 2**20)[-1] == 64 * 2**20
    assert sizes(4) == ()


def test_all_ranks_hold_equal_parts_of_whole_elements() -> None:
    assert whole(8, "all_reduce", 3) == 8
    assert whole(8, "all_gather", 3) == 12
    assert whole(1024, "all_to_all", 3) == 1032
    assert whole(1024, "reduce_scatter", 4) == 1024


def test_calls_fill_the_target_within_limits() -> None:
    assert calls(0.01, 0.1) == 10
    assert calls(5.0, 0.1) == LEAST
    assert calls(1e-6, 0.1) == MOST
    assert calls(0.0, 0.1) == MOST


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("all_to_all", 0.75),
     ("broadcast", 1.0)],
)  # fmt: skip
def test_factors_of_nccl_tests_for_four_ranks(operation: str, expected: float) -> None:
    assert factor(operation, 4) == expected  # type: ignore[arg-type]


def point(size: int, seconds: float) -> Point:
    return Point(bytes=size, calls=7, seconds=(seconds,) * 7, wrong=0)


def test_the_next_size_is_foreseen_on_the_line_through_the_last_two() -> None:
    assert foreseen([point(8, 0.08)], 16) == 0.08, "latency alone does not double"
    assert foreseen([point(8, 0.08), point(16, 0.08)], 32) == pytest.approx(0.08)
    assert foreseen([point(2**20, 1.0), point(2**21, 2.0)], 2**22) == pytest.approx(4.0)
    assert foreseen([point(8, 0.09), point(16, 0.08)], 32) == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [("all_reduce", 600), ("all_gather", 300), ("reduce_scatter", 300), ("all_to_all", 300),
     ("broadcast", 300)],
)  # fmt: skip
def test_what_four_ranks_must_send_together(operation: str, expected: float) -> None:
    assert must_send(operation, 4, 100) == pytest.approx(expected)  # type: ignore[arg-type]
