"""A clock that leaves out the time in which its process could not run.

Slurm suspends jobs, somebody stops a step, a laptop sleeps: what passes meanwhile is neither a hang
nor training time. A thread that looks at the clock all the time sees afterwards that one look came
late. Of all clocks CLOCK_BOOTTIME never stands still (clock_gettime(2)).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

#: Whoever keeps watch looks at least this often, seconds.
PERIOD_S = 0.25
#: A look may be this late, seconds, on a machine that is merely busy.
TOLERANCE_S = 2.0


def _elapsed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _computed() -> float:
    """CPU seconds of the main thread: native code that keeps all others waiting is no gap."""
    main = threading.main_thread().ident
    assert main is not None, "it runs"
    return time.clock_gettime(time.pthread_getcpuclockid(main))


class Awake:
    """Counts on from the first :meth:`look`. What is found of a gap is up to ``PERIOD_S`` short;
    gaps of less than ``TOLERANCE_S`` are not found. Any thread may read it."""

    def __init__(
        self, clock: Callable[[], float] = _elapsed, computed: Callable[[], float] = _computed
    ) -> None:
        self._clock, self._computed = clock, computed
        self._lock = threading.Lock()
        self._looked: float | None = None
        self._cpu = 0.0  # at that look
        self._suspended_s = 0.0

    @contextlib.contextmanager
    def kept(self) -> Iterator[Awake]:
        """A thread that does nothing else keeps watch as long as this lasts: whoever waits for a
        disk or a server is not suspended."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(PERIOD_S):
                self.look()

        self.look()
        watcher = threading.Thread(target=watch, name="awake", daemon=True)
        watcher.start()
        try:
            yield self
        finally:
            over.set()
            watcher.join()

    def look(self) -> float:
        """As :meth:`now`, for whoever keeps watch: once begun, every ``PERIOD_S`` or sooner."""
        with self._lock:
            return self._look(self._clock())

    def now(self) -> float:
        """Seconds since some moment, without those in which this process could not run."""
        return self.read()[0]

    def suspended_s(self) -> float:
        """Seconds left out so far."""
        return self.read()[1]

    def read(self) -> tuple[float, float]:
        """Both, as of one moment."""
        with self._lock:
            now = self._clock()
            if self._looked is not None:
                self._look(now)  # so that no gap reaches back before it
            return now - self._suspended_s, self._suspended_s

    def _look(self, now: float) -> float:
        cpu = self._computed()
        if self._looked is not None:
            late = now - self._looked - max(PERIOD_S, cpu - self._cpu)
            if late > TOLERANCE_S:
                self._suspended_s += late
        self._looked, self._cpu = now, cpu
        return now - self._suspended_s
