"""Spans of time as a reader sees them."""

from __future__ import annotations

import pytest

from jobs.messages import clock


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, ""), (0.4, "0:00"), (59.6, "1:00"), (65, "1:05"), (3600, "1:00:00"),
     (90_061, "25:01:01")],
)  # fmt: skip
def test_clock(seconds: float | None, text: str) -> None:
    assert clock(seconds) == text
