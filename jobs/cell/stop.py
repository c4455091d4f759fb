"""Why a supervisor or a sweep has to end before its time: a signal, or the end of its `make`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType

from train.record.run import Status

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Reason:
    """A stop that was asked for: what it makes of a cell, and in words."""

    status: Status
    text: str
    rank: int | None = None  # the rank to blame, where one is


@dataclass
class Stop:
    """Set by a signal, or by the end of the process that this one works for."""

    parent: int | None = None  # whose end counts as a stop
    told: Reason | None = None  # the first
    at: float | None = None  # of the signal, seconds since 1970

    @property
    def reason(self) -> Reason | None:
        if self.told is None and self.parent is not None and os.getppid() != self.parent:
            self.told = Reason("cancelled", "the make that started this has ended")
        return self.told

    def wait(self, seconds: float) -> None:
        """Sleep, until there is a reason to stop."""
        deadline = time.monotonic() + seconds
        while self.reason is None and time.monotonic() < deadline:
            time.sleep(0.1)


@contextlib.contextmanager
def stopped_by_signals(
    parent: int | None = None, signals: Iterable[signal.Signals] = SIGNALS
) -> Iterator[Stop]:
    """Turn the signals that end a job into a reason; they often come twice, so only the first
    counts and the handler does nothing but remember: nothing is interrupted half-way.

    A signal that is ignored stays so: nohup and background shells ask for that. Slurm's warning,
    SIGUSR2, is the exception: batch scripts ignore it until somebody listens. So is SIGCHLD, which
    some daemons leave ignored: every program that we start would seem to end well.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    stop = Stop(parent)

    def remember(number: int, _frame: FrameType | None) -> None:
        stop.told = stop.told or Reason("cancelled", f"got {signal.Signals(number).name}")
        stop.at = stop.at or time.time()

    heard = [
        number
        for number in signals
        if number == signal.SIGUSR2 or signal.getsignal(number) != signal.SIG_IGN
    ]
    before = [signal.signal(number, remember) for number in heard]
    # whoever started us may have held them back until somebody listens
    signal.pthread_sigmask(signal.SIG_UNBLOCK, heard)
    try:
        yield stop
    finally:
        for number, handler in zip(heard, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def held_back(*numbers: signal.Signals) -> Iterator[None]:
    """Keep signals from this thread until the end, and from processes started meanwhile for as long
    as they do not ask for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
