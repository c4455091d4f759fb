"""The ranks of one start as a Slurm step: one srun, watched through what it says."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.ended import Ended, bad_ends, watch
from jobs.slurm.steplog import SLURMSTEPD, StepLog
from jobs.stop import Reason

#: Where srun itself speaks, beside the ranks' own logs.
SRUN_LOG = "srun.log"
POLL_S = 0.2
#: srun may live on for a while after the first bad exit; that long, then the step is ended.
GRACE_S = 20.0
#: srun told to end kills its tasks and waits for the nodes to say so.
KILL_AFTER_S = 6.0
GIVE_UP_S = 20.0
#: slurmstepd's words are among the last that stand in a rank's log.
RANK_LOG_BYTES = 64 * 1024


@dataclass
class StepRanks:
    """All ranks of a start on Slurm. ``log``: what srun itself says; each rank's output, and what
    its node says of it, is in rank-N.log beside it.

    A rank that ends with another code than 0 makes srun end the others (--kill-on-bad-exit), so
    only the first that it names ended by itself.
    """

    log: Path
    process: subprocess.Popen[bytes] | None = None
    ended: dict[int, Ended] = field(default_factory=dict)
    asked_at: float | None = None
    said: StepLog = field(default_factory=StepLog)
    code: int | None = None  # srun's own
    grace_s: float = GRACE_S  # from the first bad exit to the step's end; infinity: nobody is ended
    _size: int = 0
    _read: int = 0  # bytes of the log
    _before: dict[int, int] = field(default_factory=dict)  # bytes of earlier starts in ranks' logs

    def start(self, argv: Sequence[str], environment: dict[str, str], size: int) -> None:
        self._read = _size_of(self.log)
        self._before = {rank: _size_of(self._log_of(rank)) for rank in range(size)}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                list(argv), env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True,
            )  # fmt: skip
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    @property
    def bad(self) -> dict[int, Ended]:
        return bad_ends(self.ended)

    @property
    def unended(self) -> list[int]:
        return [rank for rank in range(self._size) if rank not in self.ended]

    @property
    def all_ended(self) -> bool:
        return self.code is not None

    def place(self, rank: int) -> str:
        hosts = {end.rank: end.host for end in self.said.ends}
        return f"node {hosts[rank]}" if rank in hosts else "the step"

    def poll(self) -> None:
        if self.process is None or self.code is not None:
            return
        code = self.process.poll()
        self._listen()
        if code is None:
            return
        self.code = code
        self._listen_to_nodes()
        for rank in self.unended:
            # unnamed ranks of a good step ended well; of a bad one they were ended with it
            self.ended[rank] = Ended(0 if code == 0 else -signal.SIGKILL, time.time(), code != 0)

    def _listen(self) -> None:
        """Read the whole lines that are new."""
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(self._read)
            new = file.read()
            whole = (
                new.rfind(b"\n") + 1 if self.process and self.process.poll() is None else len(new)
            )
            self._read += whole
            for line in new[:whole].decode("utf-8", "replace").splitlines():
                self._note(line)

    def _listen_to_nodes(self) -> None:
        for rank, before in self._before.items():
            with contextlib.suppress(OSError), self._log_of(rank).open("rb") as file:
                file.seek(max(before, _size_of(self._log_of(rank)) - RANK_LOG_BYTES))
                for line in file.read().decode("utf-8", "replace").splitlines():
                    if line.startswith(SLURMSTEPD):
                        self.said.read(line, rank)

    def _log_of(self, rank: int) -> Path:
        return self.log.with_name(f"rank-{rank}.log")

    def _note(self, line: str) -> None:
        # also a rank that stopped on purpose makes srun end the others
        before, others = len(self.said.ends), any(end.code for end in self.ended.values())
        self.said.read(line)
        for end in self.said.ends[before:]:
            if end.rank < self._size and end.rank not in self.ended:
                by_us = self.asked_at is not None or others
                self.ended[end.rank] = Ended(end.code, time.time(), by_us)

    def watch(self, tick: Callable[[], Reason | None]) -> Reason | None:
        """Wait for the end; see :func:`jobs.ended.watch`."""
        return watch(self, tick, poll_s=POLL_S, grace_s=self.grace_s)

    def end(self) -> None:
        """End the step; returns when srun is gone: Slurm itself cleans up its nodes."""
        self.poll()
        if self.process is None or self.code is not None:
            return
        self.asked_at = self.asked_at or time.time()
        for number, patience_s in ((signal.SIGTERM, KILL_AFTER_S), (signal.SIGKILL, GIVE_UP_S)):
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience_s)
                break
        self.poll()


def _size_of(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return 0
