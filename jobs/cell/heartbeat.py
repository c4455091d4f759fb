"""Life signs: each rank writes down every second what it does; who has gone silent, and who hangs.

Only the order of a file's times is trusted, never their distance to the clock here: a laptop that
slept, a clock that was set, or a file server with its own clock make no rank look dead.
"""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from jobs.cell.stop import Reason
from train.distributed.awake import Awake
from train.record.cell_folder import rank_file

#: A rank that wrote nothing for this long before a hang was noticed is stopped or gone.
SILENT_S = 3.0
NEVER = "it never started"
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class Sign(NamedTuple):
    """The last life sign of one rank."""

    rank: int
    at: float | None  # the file's time, seconds; None: there is no file
    phase: str
    idle_s: float  # since its last progress, as it said itself
    asleep_s: float  # of these, the longest in which not even its watchdog ran
    pid: int | None = None  # where it runs on this host


def read_sign(cell: Path, rank: int) -> Sign:
    file = rank_file(cell, rank, "beat")
    try:
        at = file.stat().st_mtime
    except OSError:
        return Sign(rank, None, NEVER, 0.0, 0.0)
    # a rank that is ended while it writes leaves half a file
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(file.read_text(encoding="utf-8"))
        idle_s, asleep_s = float(told["idle_s"]), float(told.get("asleep_s", 0))
        pid = int(told["pid"]) if told.get("host") == socket.gethostname() else None
        return Sign(rank, at, str(told["phase"]), idle_s, asleep_s, pid)
    return Sign(rank, at, "unknown", 0.0, 0.0)


@dataclass
class Watch:
    """The supervisor's own watch: it also sees a rank whose watchdog is stopped with it."""

    cell: Path
    size: int
    awake: Awake = field(default_factory=Awake)  # where this process is suspended, so are ranks
    _seen: dict[int, tuple[int, float]] = field(default_factory=dict)

    def stale(self, limit_s: float) -> Reason | None:
        """The rank whose life sign has not changed for the longest, if over ``limit_s`` seconds.

        Ranks that somebody stopped, all together, do not hang: their wait begins anew.
        """
        now = self.awake.look()
        for rank in range(self.size):
            try:
                stamp = rank_file(self.cell, rank, "beat").stat().st_mtime_ns
            except OSError:
                stamp = 0
            if rank not in self._seen or stamp != self._seen[rank][0]:
                self._seen[rank] = (stamp, now)
        silent_s, rank = max((now - since, rank) for rank, (_, since) in self._seen.items())
        if silent_s <= limit_s:
            return None
        if self._are_stopped(now):
            self._seen = {rank: (stamp, now) for rank, (stamp, _) in self._seen.items()}
            return None
        phase = read_sign(self.cell, rank).phase
        text = f"a hang: rank {rank} showed no life for {silent_s:.0f} s (while: {phase})"
        return Reason("failed", text, rank)

    def _are_stopped(self, now: float) -> bool:
        """Whether all ranks are silent, and those of this host are stopped or frozen."""
        if any(now - since <= SILENT_S for _, since in self._seen.values()):
            return False
        here = [pid for rank in range(self.size) if (pid := read_sign(self.cell, rank).pid)]
        return bool(here) and all(is_stopped(pid) for pid in here)


def is_stopped(pid: int) -> bool:
    """Whether this process is stopped by a signal, or its control group is frozen
    (cgroups(7))."""
    try:
        state = psutil.Process(pid).status()
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except (psutil.Error, OSError):
        return False
    groups = [line.split(":", 2) for line in lines]
    return state in _STOPPED or any(_is_frozen(kind, path) for _, kind, path in groups)


def _is_frozen(kind: str, path: str) -> bool:
    mount = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        if kind == "":  # version 2
            return "frozen 1" in (mount / path.lstrip("/") / "cgroup.events").read_text()
        if kind == "freezer":
            return "THAWED" not in (mount / kind / path.lstrip("/") / "freezer.state").read_text()
    return False


def blame(cell: Path, size: int, first: int) -> tuple[str, str, int]:
    """For a hang: what happened, what every rank did, and the rank that the others waited for.

    ``first``: the rank whose watchdog ended it first; its last life sign is the moment of the hang.
    What all ranks were suspended for together is nobody's fault. To blame is a rank that wrote
    nothing at all, else one that was silent then or since its last progress, else the one whose
    last progress is the longest ago.
    """
    signs = [read_sign(cell, rank) for rank in range(size)]
    known = [sign.at for sign in signs if sign.at is not None]
    moment = signs[first].at or max(known, default=0.0)
    together_s = min(sign.asleep_s for sign in signs)

    def suspicion(sign: Sign) -> tuple[bool, bool, float]:
        if sign.at is None:
            return True, True, 0.0
        quiet_s = moment - sign.at
        # what stopped it may be over: it is woken to be ended, by the launcher of a step, say
        silent_s = max(quiet_s, sign.asleep_s - together_s)
        if silent_s > SILENT_S:
            return False, True, silent_s
        return False, False, quiet_s + sign.idle_s

    found = max(signs, key=suspicion)
    silent = suspicion(found)[1]
    state = "shows no life" if silent else f"made no progress for {found.idle_s:.0f} s"
    others = "; ".join(f"rank {sign.rank}: {sign.phase}" for sign in signs)
    return f"a hang: rank {found.rank} {state} (while: {found.phase})", others, found.rank
