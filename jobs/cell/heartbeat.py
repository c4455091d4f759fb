"""Heartbeats: each rank writes down every 15 s what it does; who has gone silent, and who hangs.

Only the order of a file's times is trusted, never their distance to the clock here: a laptop that
slept, a clock that was set, or a file server with its own clock make no rank look dead.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from jobs.cell.stop import Reason
from train.distributed.awake import Awake
from train.distributed.watchdog import BEAT_S, WAITING
from train.record.cell_folder import rank_file

#: The supervisor looks at the ranks' files this often, seconds.
LOOK_S = 10.0
#: Attributes of a file that another machine wrote may be this old, seconds: nfs(5), acregmax.
CACHED_S = 60.0
#: A sign that comes this much later than it is due, seconds, was held up: the rank was stopped.
LATE_S = 3.0
NEVER = "it never started"


class Sign(BaseModel):
    """The last life sign of one rank, as its watchdog writes it."""

    phase: str = "unknown"
    idle_s: float = 0.0  # since its last progress
    asleep_s: float = 0.0  # of these, the time in which not even its watchdog ran
    beat_s: float = BEAT_S  # until its next sign, if all is well
    host: str = ""
    pid: int | None = None
    at: float | None = None  # the file's time, seconds; None: there is no file


def read_sign(cell: Path, rank: int) -> Sign:
    """Opens the file, since a network file system then asks its server."""
    at = None
    # a reader may meet half a line
    with contextlib.suppress(OSError, ValueError), rank_file(cell, rank, "beat").open("rb") as file:
        at = os.fstat(file.fileno()).st_mtime
        return Sign.model_validate_json(file.readline()).model_copy(update={"at": at})
    return Sign(phase=NEVER if at is None else "unknown", at=at)


@dataclass
class Watch:
    """The supervisor's own watch: it also sees a rank whose watchdog is stopped with it."""

    cell: Path
    size: int
    stall_s: float
    awake: Awake = field(default_factory=Awake)  # where this process is suspended, so are ranks
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)
    _looked: float = -math.inf

    @property
    def limit_s(self) -> float:
        """How long a rank's file may stay the same, seconds. That of a healthy rank can look
        unchanged for BEAT_S (its next sign), CACHED_S (NFS) and LOOK_S (our next look). On top
        come 1.5 x ``stall_s``, so that the watchdogs of its peers, which know the cause better and
        act after ``stall_s``, come first."""
        return 1.5 * self.stall_s + BEAT_S + CACHED_S + LOOK_S

    def hang(self) -> Reason | None:
        """The rank whose file has not changed for the longest, if for longer than ``limit_s``.

        Ranks that somebody stopped, all together, do not hang: their wait begins again at each look
        for as long as that lasts, so that they have time for a sign when they go on.
        """
        now = self.awake.look()
        if now - self._looked < LOOK_S:
            return None
        self._looked = now
        for rank in range(self.size):
            try:
                stamp = rank_file(self.cell, rank, "beat").stat().st_mtime_ns
            except FileNotFoundError:
                stamp = 0
            except OSError:
                stamp = -round(now)  # what cannot be seen now is no silence
            if rank not in self._seen or stamp != self._seen[rank][0]:
                self._seen[rank] = (stamp, now)
        silent_s = {rank: now - since for rank, (_, since) in self._seen.items()}
        if min(silent_s.values()) > 2 * BEAT_S and self._all_stopped():
            self._seen = {rank: (stamp, now) for rank, (stamp, _) in self._seen.items()}
            return None
        rank = max(silent_s, key=lambda rank: silent_s[rank])
        if silent_s[rank] <= self.limit_s:
            return None
        phase = read_sign(self.cell, rank).phase
        text = f"a hang: rank {rank} showed no life for {silent_s[rank]:.0f} s (while: {phase})"
        return Reason("failed", text, rank)

    def _all_stopped(self) -> bool:
        """Whether all ranks of this machine are, of which there is one at least."""
        signs = [read_sign(self.cell, rank) for rank in range(self.size)]
        here = [sign.pid for sign in signs if sign.pid and sign.host == socket.gethostname()]
        return bool(here) and all(map(is_stopped, here))


def is_stopped(pid: int) -> bool:
    """Whether this process is stopped by a signal (proc_pid_stat(5))."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "tT"
    return False


def blame(cell: Path, size: int, first: int) -> tuple[str, str, int]:
    """For a hang: what happened, what every rank did, and the rank that the others waited for.

    ``first``: the rank whose watchdog ended it first; its last sign is the moment of the hang.
    What all ranks were suspended for together is nobody's fault. To blame is a rank that wrote
    nothing at all, else one whose sign was overdue then, or that slept since its last progress;
    else the one whose last progress is the longest ago, of those that do not wait for others.
    """
    signs = [read_sign(cell, rank) for rank in range(size)]
    moment = signs[first].at or max((sign.at or 0.0 for sign in signs), default=0.0)
    together_s = min(sign.asleep_s for sign in signs)

    def overdue_s(rank: int) -> float:
        sign = signs[rank]
        if sign.at is None:
            return math.inf
        # what stopped it may be over: it is woken to be ended, by the launcher of a step, say
        return max(moment - sign.at - sign.beat_s, sign.asleep_s - together_s)

    def idle_s(rank: int) -> float:
        return moment - (signs[rank].at or moment) + signs[rank].idle_s

    culprit = max(range(size), key=overdue_s)
    state = "shows no life"
    if overdue_s(culprit) <= LATE_S:
        busy = [rank for rank in range(size) if not signs[rank].phase.endswith(WAITING)]
        culprit = max(busy or range(size), key=idle_s)
        state = f"made no progress for {signs[culprit].idle_s:.0f} s"
    what = f"a hang: rank {culprit} {state} (while: {signs[culprit].phase})"
    others = "; ".join(f"rank {rank}: {sign.phase}" for rank, sign in enumerate(signs))
    return what, others, culprit
