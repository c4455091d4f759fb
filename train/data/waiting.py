"""Progress of work on data, and who prepares a data set while others wait for it.

Progress goes to stderr (stdout belongs to results), and to the watchdog of a rank.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path

from filelock import FileLock, Timeout

_SILENT_S = 5.0
_POLL_S = 0.5
_beat: ContextVar[Callable[[str], None]] = ContextVar("beat", default=lambda _doing: None)
_said_at: ContextVar[float] = ContextVar("said_at")


@contextlib.contextmanager
def report_to(beat: Callable[[str], None]) -> Iterator[None]:
    """``beat`` is called with all progress that this thread makes with data."""
    before = _beat.set(beat)
    try:
        yield
    finally:
        _beat.reset(before)


def progress(doing: str) -> None:
    """A sign of life, printed when nothing was for five seconds."""
    _beat.get()(f"loading the data: {doing}")
    now = time.monotonic()
    if now - _said_at.get(now) > _SILENT_S:
        say(doing)


def say(text: str) -> None:
    _said_at.set(time.monotonic())
    _beat.get()(f"loading the data: {text}")
    print(f"data: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def one_at_a_time(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of this name in ``folder``, on all machines that share it. Where a file system
    has no locks or nothing can be written, nobody waits: a data set is made next to its place and
    then renamed, so that two processes which make the same one only lose time."""
    file = folder / f".{re.sub(r'[^a-z0-9]+', '_', name.lower())[-100:]}.lock"
    lock = FileLock(file, fallback_to_soft=False)
    show: Callable[[str], None] = say
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(lock.acquire(timeout=_POLL_S, poll_interval=_POLL_S / 5))
                break
            except Timeout:
                show(f"another process prepares {name}: waiting for it")
                show = progress
            except OSError:
                break
        yield
