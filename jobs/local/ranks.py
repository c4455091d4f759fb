"""The rank processes of one start on this machine; none is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.cell.ranks import Ended, RankSet


@dataclass
class Ranks(RankSet):
    """Each rank leads a process group of its own, so that its helpers end with it."""

    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    ended: dict[int, Ended] = field(default_factory=dict)
    asked_at: float | None = None

    def start(self, argv: Sequence[str], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as out:
            self.processes.append(
                subprocess.Popen(
                    list(argv), env=environment, stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.STDOUT, start_new_session=True,
                )
            )  # fmt: skip

    @property
    def size(self) -> int:
        return len(self.processes)

    def place(self, rank: int) -> str:
        return f"process {self.processes[rank].pid}"

    def poll(self) -> None:
        for rank in self.unended:
            process = self.processes[rank]
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            # its helpers first: until it is waited for, nobody else can be given its number
            _signal_group(process.pid, signal.SIGKILL)
            self.ended[rank] = Ended(process.wait(), time.time(), self.asked_at is not None)

    def signal(self, number: signal.Signals) -> None:
        for rank in self.unended:
            _signal_group(self.processes[rank].pid, number)
            # a stopped process hears it only when it goes on
            _signal_group(self.processes[rank].pid, signal.SIGCONT)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
