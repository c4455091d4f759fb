"""A thread in every rank that ends a hang and reports life.

Horovod's own stall inspector never fires under Gloo: a rank that stops leaves its peers waiting
for ever without a word. Each rank therefore writes down what it is doing, and ends itself when
that has not changed for too long, after dumping all stacks into its log.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from train.orphan import is_orphan

EXIT_STALLED = 75
#: What hangs may be the file system that the report is written to: it gets this long, no longer.
REPORT_S = 10.0


class Watchdog:
    """Call :meth:`beat` at every sign of progress; use as a context manager."""

    def __init__(
        self,
        file: Path,
        stall_s: float,
        supervisor: int | None,
        on_stall: Callable[[str], None],
        *,
        period_s: float = 1.0,
    ) -> None:
        self._file = file
        self._stall_s = stall_s
        self._supervisor = supervisor
        self._on_stall = on_stall
        self._period_s = period_s
        self._phase = "starting"
        self._at = time.monotonic()
        self._asleep_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def beat(self, phase: str) -> None:
        """Progress: what this rank does from now on."""
        self._phase, self._at, self._asleep_s = phase, time.monotonic(), 0.0

    def _watch(self) -> None:
        looked = time.monotonic()
        while not self._stop.wait(self._period_s):
            now = time.monotonic()
            # a rank that was stopped is woken to be ended, and would look as lively as its peers
            self._asleep_s = max(self._asleep_s, now - looked - self._period_s)
            looked = now
            idle = now - self._at
            # life signs are a courtesy: a full disk must not end the run
            with contextlib.suppress(OSError):
                self._write(idle)
            if self._supervisor is not None and is_orphan(self._supervisor):
                os._exit(EXIT_STALLED)  # nobody is left to end us or to use our result
            if idle > self._stall_s:
                self._end(idle)

    def _write(self, idle: float) -> None:
        """Whole or absent, since the supervisor tells ranks apart by it; no fsync every second."""
        temporary = self._file.with_name(f".{self._file.name}.tmp")
        told = {
            "phase": self._phase, "idle_s": round(idle, 1), "asleep_s": round(self._asleep_s, 1)
        }  # fmt: skip
        temporary.write_text(json.dumps(told))
        temporary.replace(self._file)

    def _end(self, idle: float) -> None:
        """Stacks, report, exit: the exit comes whatever becomes of the other two."""
        try:
            # the descriptor, not sys.stderr, which may be gone or no file
            faulthandler.dump_traceback(file=2, all_threads=True)
            what = f"no progress for {idle:.0f} s while: {self._phase}"
            report = threading.Thread(target=self._on_stall, args=(what,), daemon=True)
            report.start()
            report.join(REPORT_S)
        finally:
            os._exit(EXIT_STALLED)
