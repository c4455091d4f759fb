"""Progress for people, on stderr (stdout belongs to results), and for whoever ends a hang."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_EVERY_S = 5.0
_Beat = Callable[[str], None]
_beat: ContextVar[_Beat | None] = ContextVar("beat", default=None)


@contextlib.contextmanager
def heard_by(beat: _Beat) -> Iterator[None]:
    """``beat`` hears of all progress that this thread makes with data, as do earlier listeners."""
    earlier = _beat.get()

    def all_hear(doing: str) -> None:
        if earlier:
            earlier(doing)
        beat(doing)

    before = _beat.set(all_hear)
    try:
        yield
    finally:
        _beat.reset(before)


def goes_on(doing: str) -> None:
    """A sign of life, for nobody's eyes."""
    if beat := _beat.get():
        beat(f"loading the data: {doing}")


def say(text: str) -> None:
    goes_on(text)
    print(f"data: {text}", file=sys.stderr, flush=True)


class Ticker:
    """Says how far a long task is, at most once in five seconds; short tasks stay silent."""

    def __init__(self, doing: str, total: int, unit: str) -> None:
        self._doing, self._total, self._unit = doing, total, unit
        self._done = 0
        self._said_at = time.monotonic()

    def add(self, amount: int) -> None:
        self._done += amount
        goes_on(f"{self._doing}: {self._done:,} of {self._total:,} {self._unit}")
        if time.monotonic() - self._said_at >= _EVERY_S:
            self._said_at = time.monotonic()
            say(f"{self._doing}: {self._done:,} of {self._total:,} {self._unit}")
