"""One process at a time makes a data set, on all machines that share its folder; others wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

from train.data.progress import goes_on, say

_POLL_S = 0.5


@contextlib.contextmanager
def one_at_a_time(folder: Path, name: str) -> Iterator[bool]:
    """Hold the lock of this name in ``folder``; True where another process had it before.

    It ends with its process, however that ends. Where a file system has no locks, or nothing can
    be written, nobody waits: data sets are made beside their place and renamed, so that it only
    costs time where two make one.
    """
    file = folder / f".{re.sub(r'[^a-z0-9]+', '_', name.lower())[-100:]}.lock"
    waited = False
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            while (lock := _take(file)) is None:
                if not waited:
                    say(f"another process prepares {name}: waiting for it")
                waited = True
                goes_on(f"waiting for another process to prepare {name}")
                time.sleep(_POLL_S)
            held.callback(_leave, file, lock)
        yield waited


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
