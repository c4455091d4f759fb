"""The ranks of one start, whoever started them: watched, ended, and how each of them ended."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

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


class RankSet(ABC):
    """All ranks of one start; a launcher says how they are polled and signalled."""

    ended: dict[int, Ended]
    asked_at: float | None  # seconds since the epoch: when they were asked to end
    poll_s: float = 0.1
    #: From the first bad end to that of all: its peers write down what they saw.
    grace_s: float = 5.0
    #: How long they may take to end when they are asked to, and when they are killed.
    term_s: float = 3.0
    kill_s: float = 30.0

    @property
    @abstractmethod
    def size(self) -> int:
        """How many were started."""

    @abstractmethod
    def poll(self) -> None:
        """Note in ``ended`` which ranks have ended since."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send the signal to all ranks that have not ended."""

    def wait(self, seconds: float) -> None:
        """Until the next poll; a launcher that hears of the end of all may return sooner."""
        time.sleep(seconds)

    @abstractmethod
    def place(self, rank: int) -> str:
        """Where a rank runs, for a person."""

    @property
    def unended(self) -> list[int]:
        return [rank for rank in range(self.size) if rank not in self.ended]

    @property
    def all_ended(self) -> bool:
        return not self.unended

    @property
    def bad(self) -> dict[int, Ended]:
        """Ranks that ended badly and by themselves, in the order in which they did."""
        good = (0, EXIT_UNFINISHED)
        return {r: end for r, end in self.ended.items() if end.code not in good and not end.by_us}

    def watch(self, tick: Callable[[], Reason | None]) -> Reason | None:
        """Wait for the end. ``tick``, asked at every poll, may give a reason to end them, which is
        returned."""
        end_at = math.inf
        while True:
            self.poll()
            reason = tick()  # also when all have ended: we may have been told what ended them
            if self.all_ended:
                return reason
            if self.bad:
                end_at = min(end_at, time.monotonic() + self.grace_s)
            if reason or time.monotonic() > end_at:
                self.end()
                return reason
            self.wait(self.poll_s)

    def end(self) -> None:
        """Ask the rest to end, then kill; returns when no rank is left, or none that can end."""
        self.poll()
        if self.all_ended:
            return
        self.asked_at = self.asked_at or time.time()
        for number, patience_s in ((signal.SIGTERM, self.term_s), (signal.SIGKILL, self.kill_s)):
            self.signal(number)
            deadline = time.monotonic() + patience_s
            while not self.all_ended and time.monotonic() < deadline:
                self.wait(self.poll_s)
                self.poll()


def end_leftovers(cell: Path) -> None:
    """Kill what ranks of this cell left running: helpers that left their group, and ranks whose
    supervisor was killed and that did not end by themselves.

    Only for the holder of the cell's lock, when no start of its own is running: they are known by
    the variable that each rank of a cell gets, and passes on to its helpers.
    """
    stem = str(rendezvous_stem(cell))
    deadline = time.monotonic() + LEFTOVERS_S
    while (left := _marked(stem)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(0.05)


def _marked(stem: str) -> list[psutil.Process]:
    """Other processes, not yet ended, that meet at a file whose name begins with ``stem``."""
    return [
        process
        for process in psutil.process_iter(["environ"])
        if process.pid != os.getpid()
        and (process.info["environ"] or {}).get(RENDEZVOUS, "").startswith(stem)
    ]
