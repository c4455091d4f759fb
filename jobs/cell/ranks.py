"""How the ranks of one start ended, whoever started them: what the search for the cause needs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobs.cell.launch import RENDEZVOUS, rendezvous_stem
from jobs.cell.stop import Reason
from train.record.cell_folder import EXIT_UNFINISHED

#: A killed process that is still there waits in the kernel, for a device or a file server.
LEFTOVERS_S = 30.0


@dataclass(frozen=True)
class Ended:
    """How one rank ended; ``by_us`` when the supervisor had asked it to."""

    code: int  # negative: the signal that ended it
    at: float  # seconds since the epoch, to be compared with what ranks write
    by_us: bool


class RankSet(Protocol):
    """All ranks of one start."""

    ended: dict[int, Ended]
    asked_at: float | None  # seconds since the epoch

    @property
    def size(self) -> int: ...  # 0 before anything was started
    @property
    def bad(self) -> dict[int, Ended]:
        """Ranks that ended badly and by themselves, in the order in which they did."""

    @property
    def unended(self) -> list[int]: ...
    @property
    def all_ended(self) -> bool: ...
    def poll(self) -> None: ...
    def place(self, rank: int) -> str:
        """Where a rank runs, for a person."""

    def watch(self, tick: Callable[[], Reason | None]) -> Reason | None: ...
    def end(self) -> None: ...


def bad_ends(ended: dict[int, Ended]) -> dict[int, Ended]:
    return {
        rank: end
        for rank, end in ended.items()
        if end.code not in (0, EXIT_UNFINISHED) and not end.by_us
    }


def watch(
    ranks: RankSet, tick: Callable[[], Reason | None], *, poll_s: float, grace_s: float
) -> Reason | None:
    """Wait for the end. ``tick`` may name a reason to stop; a bad exit stops after ``grace_s``.

    Returns:
        The reason that ``tick`` gave, or None.
    """
    stop_at: float | None = None
    while True:
        ranks.poll()
        reason = tick()  # even when all have ended: what ended them may have told us, too
        if ranks.all_ended:
            return reason
        if ranks.bad and stop_at is None:
            stop_at = time.monotonic() + grace_s
        if reason or (stop_at is not None and time.monotonic() > stop_at):
            ranks.end()
            return reason
        time.sleep(poll_s)


def end_leftovers(cell: Path) -> None:
    """Kill what ranks of this cell left running: helpers that left their group, and ranks whose
    supervisor was killed and that did not end by themselves.

    Only for the holder of the cell's lock, when no start of its own is running: they are known by
    the variable that each rank of a cell gets, and passes on to its helpers.
    """
    mark = os.fsencode(f"{RENDEZVOUS}={rendezvous_stem(cell)}")
    deadline = time.monotonic() + LEFTOVERS_S
    while (found := _marked(mark)) and time.monotonic() < deadline:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _marked(mark: bytes) -> list[int]:
    """Processes, not yet ended, with a variable that begins with ``mark``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (folder / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(mark) for variable in variables):
                found.append(int(folder.name))
    return [pid for pid in found if pid != os.getpid()]
