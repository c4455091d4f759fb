"""How the ranks of one start ended, whoever started them: what the search for the cause needs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from jobs.stop import Reason
from train.record.cell_folder import EXIT_UNFINISHED


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
