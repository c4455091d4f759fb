"""The rank processes of one start on this machine: started, watched, ended; never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

POLL_S = 0.1
#: Time for the peers of a dead rank to notice and write down their own view.
GRACE_S = 5.0
KILL_AFTER_S = 3.0


@dataclass(frozen=True)
class Ended:
    """How one rank ended; ``by_us`` when the supervisor had asked it to."""

    code: int  # negative: the signal that ended it
    at: float  # monotonic seconds
    by_us: bool


@dataclass
class Ranks:
    """All ranks of a start; each leads its own process group, so that helpers end with it."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: dict[int, Ended] = field(default_factory=dict)
    _asked: bool = False

    def start(self, argv: Sequence[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as out:
            self.processes.append(
                subprocess.Popen(
                    list(argv), env=environment, stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip

    def poll(self) -> None:
        for rank, process in enumerate(self.processes):
            code = process.poll()
            if code is not None and rank not in self.ended:
                self.ended[rank] = Ended(code, time.monotonic(), self._asked)

    @property
    def all_ended(self) -> bool:
        return len(self.ended) == len(self.processes)

    @property
    def bad(self) -> dict[int, Ended]:
        return {rank: end for rank, end in self.ended.items() if end.code != 0 and not end.by_us}

    def watch(self, tick: Callable[[], str | None]) -> str | None:
        """Wait for the end. ``tick`` may name a reason to stop; a bad exit stops after a grace.

        Returns:
            The reason that ``tick`` gave, or None.
        """
        stop_at: float | None = None
        while True:
            self.poll()
            if self.all_ended:
                return None
            if reason := tick():
                self.end()
                return reason
            if self.bad and stop_at is None:
                stop_at = time.monotonic() + GRACE_S
            if stop_at is not None and time.monotonic() > stop_at:
                self.end()
                return None
            time.sleep(POLL_S)

    def end(self, patience_s: float = KILL_AFTER_S) -> None:
        """Ask the rest to end, then kill; returns when no rank is left."""
        self._asked = True
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not self.all_ended:
            self.poll()
            time.sleep(0.02)
        self._signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()
        self.poll()

    def _signal(self, number: int) -> None:
        for rank, process in enumerate(self.processes):
            if rank not in self.ended:
                try:
                    os.killpg(process.pid, number)
                    if number == signal.SIGTERM:  # a stopped process hears it only when continued
                        os.killpg(process.pid, signal.SIGCONT)
                except ProcessLookupError:
                    continue
