"""The rank processes of one start on this machine: started, watched, ended; never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.cell.ranks import Ended, bad_ends, watch
from jobs.cell.stop import Reason

POLL_S = 0.1
#: Time for the peers of a dead rank to notice and write down their own view.
GRACE_S = 5.0
KILL_AFTER_S = 3.0
#: A killed process that is still there waits in the kernel, for a device or a file server.
GIVE_UP_S = 30.0


@dataclass
class Ranks:
    """All ranks of a start; each leads its own process group, so that helpers end with it."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: dict[int, Ended] = field(default_factory=dict)
    asked_at: float | None = None  # seconds since the epoch

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
            if rank in self.ended or not _has_ended(process.pid):
                continue
            # its helpers first: until it is waited for, nobody else can be given its number
            _signal_group(process.pid, signal.SIGKILL)
            self.ended[rank] = Ended(process.wait(), time.time(), self.asked_at is not None)

    @property
    def size(self) -> int:
        return len(self.processes)

    def place(self, rank: int) -> str:
        return f"process {self.processes[rank].pid}"

    @property
    def all_ended(self) -> bool:
        return len(self.ended) == len(self.processes)

    @property
    def bad(self) -> dict[int, Ended]:
        """Ranks that ended badly and by themselves, in the order in which they did."""
        return bad_ends(self.ended)

    @property
    def unended(self) -> list[int]:
        return [rank for rank in range(len(self.processes)) if rank not in self.ended]

    def watch(self, tick: Callable[[], Reason | None]) -> Reason | None:
        """Wait for the end; see :func:`jobs.ended.watch`."""
        return watch(self, tick, poll_s=POLL_S, grace_s=GRACE_S)

    def end(self) -> None:
        """Ask the rest to end, then kill; returns when no rank is left, or none that can end."""
        self.poll()
        self.asked_at = self.asked_at or time.time()
        self._signal_all(signal.SIGTERM)
        self._wait(KILL_AFTER_S)
        self._signal_all(signal.SIGKILL)
        self._wait(GIVE_UP_S)

    def _signal_all(self, number: signal.Signals) -> None:
        for rank in self.unended:
            _signal_group(self.processes[rank].pid, number)
            if number == signal.SIGTERM:  # a stopped process hears it only when continued
                _signal_group(self.processes[rank].pid, signal.SIGCONT)

    def _wait(self, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        self.poll()
        while time.monotonic() < deadline and not self.all_ended:
            time.sleep(0.02)
            self.poll()


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
