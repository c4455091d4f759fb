"""Who prepares a data set, and what is said while others wait.

One process at a time makes a data set, on all machines that share its folder. Progress goes to
stderr (stdout belongs to results), and to whoever would end a hang.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from io import TextIOWrapper
from pathlib import Path

_EVERY_S = 5.0
_Beat = Callable[[str], None]
_beat: ContextVar[_Beat | None] = ContextVar("beat", default=None)
_POLL_S = 0.5


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


@contextlib.contextmanager
def one_at_a_time(folder: Path, name: str) -> Iterator[bool]:
    """Hold the lock of this name in ``folder``; True where another process had it before.

    It ends with its process, however that ends. Where a file system has no locks, or nothing can
    be written, nobody waits: data sets are made beside their place and renamed, so that it only
    costs time where two make one. Those who wait show life for as long as the holder does: a
    holder that hangs is no reason to wait for ever.
    """
    file = folder / f".{re.sub(r'[^a-z0-9]+', '_', name.lower())[-100:]}.lock"
    waited, seen_ns = False, 0
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            while (lock := _take(file)) is None:
                if not waited:
                    say(f"another process prepares {name}: waiting for it")
                waited = True
                if (touched_ns := _touched_ns(file)) != seen_ns:
                    seen_ns = touched_ns
                    goes_on(f"waiting for another process to prepare {name}")
                time.sleep(_POLL_S)
            held.callback(_leave, file, lock)
            held.enter_context(heard_by(_toucher(lock)))
        yield waited


def _toucher(lock: TextIOWrapper) -> Callable[[str], None]:
    touched = 0.0

    def touch(_doing: str) -> None:
        nonlocal touched
        if time.monotonic() - touched >= _POLL_S:
            touched = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(lock.fileno())

    return touch


def _touched_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except FileNotFoundError:  # the holder has just left
        return 0


def _take(file: Path) -> TextIOWrapper | None:
    """The lock, or None where another process has it.

    Raises:
        OSError: there can be no lock.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # not found: whoever had it has just removed it, or what is open here is the removed one
    gone = contextlib.suppress(BlockingIOError, FileNotFoundError)
    with contextlib.ExitStack() as opened, gone:
        lock = opened.enter_context(file.open("a"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock.fileno()), file.stat()):
            opened.pop_all()
            return lock
    return None


def _leave(file: Path, lock: TextIOWrapper) -> None:
    """Nothing stays behind, not even the folder where the lock was all that it held."""
    with lock, contextlib.suppress(OSError):
        file.unlink()
        file.parent.rmdir()
