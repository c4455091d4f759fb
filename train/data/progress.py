"""Progress for people, on stderr: stdout belongs to results."""

from __future__ import annotations

import sys
import time

_EVERY_S = 5.0


def say(text: str) -> None:
    print(f"data: {text}", file=sys.stderr, flush=True)


class Ticker:
    """Says how far a long task is, at most once in five seconds; short tasks stay silent."""

    def __init__(self, doing: str, total: int, unit: str) -> None:
        self._doing, self._total, self._unit = doing, total, unit
        self._done = 0
        self._said_at = time.monotonic()

    def add(self, amount: int) -> None:
        self._done += amount
        if time.monotonic() - self._said_at >= _EVERY_S:
            self._said_at = time.monotonic()
            say(f"{self._doing}: {self._done:,} of {self._total:,} {self._unit}")
