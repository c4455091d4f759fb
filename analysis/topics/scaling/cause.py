"""The parts of a lost step in words, and which of them is the largest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.table import estimate_in, percent

#: The parts in the order in which they are drawn, and how a sentence names them.
PARTS: dict[str, str] = {
    "input": "waiting for input",
    "compute": "slower computing",
    "communication": "communication, waiting for slower ranks included",
    "exposed": "exposed communication",
    "bandwidth": "exposed communication, bandwidth (model)",
    "latency": "exposed communication, latency (model)",
    "waiting": "waiting for slower ranks",
    "negotiation": "negotiation",
    "rest": "unexplained time",
}
#: Of what is lost: a part below is the rounding of a sum that has no rest.
_ROUNDING = 1e-9
MODELLED = frozenset({"bandwidth", "latency"})


class Cause(NamedTuple):
    """The largest part of what is lost.

    share: of the sum of all parts that lengthen the step. decided: its interval is above that of
    the next.
    """

    part: str
    share: float
    decided: bool

    @property
    def text(self) -> str:
        """``waiting for slower ranks, 61 % of all that lengthens the step``."""
        doubt = "" if self.decided else " (which part is largest is undecided)"
        return f"{PARTS[self.part]}, {percent(self.share)} of all that lengthens the step{doubt}"

    @property
    def sentence(self) -> str:
        if not self.decided:
            return "which part of a step grows most is undecided"
        return f"largest loss: {self.text}"


def largest_cause(row: Mapping[str, Any]) -> Cause | None:
    """Of a row of ``plain_rows``; None where nothing is lost, or nothing is known of it."""
    lost = _interval(row, "lost")
    least = _ROUNDING * lost[0]
    every = {part: _interval(row, part) for part in PARTS}
    parts = {part: found for part, found in every.items() if found[0] > least}
    if not parts or lost[0] <= 0 or lost[1] <= 0:
        return None
    first, *others = sorted(parts, key=lambda part: -parts[part][0])
    share = parts[first][0] / sum(value for value, *_ in parts.values())
    low = parts[first][1]
    decided = low > 0 and all(parts[part][2] < low for part in others)
    # a part that seems to shorten the step may yet be larger
    decided &= not any(every[part][2] >= low for part in every if part not in parts)
    return Cause(first, share, decided)


def _interval(row: Mapping[str, Any], name: str) -> tuple[float, float, float]:
    """Value, low, high; NaN where there is none, which no comparison holds for."""
    value, low, high, *_ = estimate_in(row, name)
    value, low, high = (math.nan if v is None else v for v in (value, low, high))
    return value, low, high
