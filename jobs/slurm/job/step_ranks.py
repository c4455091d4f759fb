"""The ranks of one start as a Slurm step: one srun, watched through what Slurm says of it.

srun speaks on its own error output, the nodes' slurmstepd on that of the ranks. The texts are those
of Slurm 22.05 as recorded in the transcripts of the tests, and of its sources; a line of another
form is kept for the record's log and decides nothing.
"""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs.cell.ranks import Ended, RankSet

_ENDED = re.compile(
    r"^(?:srun: )?error: (?P<host>\S+): tasks? (?P<ranks>[\d,\-]+): (?P<how>.+?)\s*$"
)
_CODE = re.compile(r"Exited with exit code (\d+)")
_STEP_ENDED = re.compile(r"\*\*\* (?:STEP|JOB) \S+ ON (?P<host>\S+) (?P<how>CANCELLED.*?) \*\*\*")
#: Said when the step is ended from outside; not when srun ends it after a rank's bad exit.
_ABORTED = "Job step aborted"
_MEMORY = re.compile(r"exceeded memory limit|oom-kill event|oom_kill event|Out Of Memory", re.I)
_NODE = re.compile(r"[Nn]ode failure on (?P<host>\S+)|DUE TO NODE FAILURE")
_LAUNCH = re.compile(
    r"(?:srun: )?(?:error: |fatal: )?"
    r"(?P<text>Task launch for \S+ failed on node \S+:.*|task \d+ launch failed:.*|"
    r"Unable to create step.*|Application launch failed:.*|Unable to (?:confirm|allocate).*|"
    r"Only allocated \d+ nodes asked for \d+.*|Slurm job \S+ has expired.*|"
    r"Couldn't find the specified.*|Invalid (?:MPI|generic resource).*|.*(?:MPI|mpi) plugin.*|"
    r"unrecognized option.*|invalid option.*|option .* requires an argument.*)"
)
#: Says best what is wrong, after lines that say less.
_PLAINEST = "Invalid MPI type"
#: Lines of slurmstepd among what a rank wrote.
SLURMSTEPD = "slurmstepd"
#: strsignal's words, as srun prints them
_SIGNALS = {
    signal.strsignal(number): number
    for number in signal.valid_signals()
    if signal.strsignal(number)
}


@dataclass(frozen=True)
class RankEnd:
    """One rank's bad end, as srun reports it."""

    rank: int
    host: str
    code: int  # negative: the signal that ended it
    text: str


@dataclass
class StepLog:
    """What the lines so far add up to."""

    ends: list[RankEnd] = field(default_factory=list)  # in the order reported
    out_of_memory: str | None = None
    out_of_memory_rank: int | None = None  # in whose log Slurm said so
    node_failure: str | None = None
    cancelled: str | None = None  # "CANCELLED AT ... DUE TO TIME LIMIT"
    aborted: bool = False  # ended from outside: a signal to it, its job, or srun
    launch_failure: str | None = None

    def read(self, line: str, rank: int | None = None) -> None:
        """``rank``: in whose log the line is; None: in srun's own."""
        line = re.sub(r"^(srun|slurmstepd): (srun|slurmstepd): ", r"\1: ", line.strip())
        if found := _ENDED.match(line):
            code = _code(found["how"])
            self.ends += [
                RankEnd(number, found["host"], code, found["how"])
                for number in _numbers(found["ranks"])
            ]
        if self.out_of_memory is None and _MEMORY.search(line):
            self.out_of_memory, self.out_of_memory_rank = _plain(line), rank
        if found := _NODE.search(line):
            self.node_failure = self.node_failure or found["host"] or _plain(line)
        if found := _STEP_ENDED.search(line):
            self.cancelled = self.cancelled or found["how"]
        self.aborted = self.aborted or _ABORTED in line
        found = _LAUNCH.match(line)
        if found and (self.launch_failure is None or found["text"].startswith(_PLAINEST)):
            self.launch_failure = found["text"]


def _plain(line: str) -> str:
    return re.sub(r"^(?:srun|slurmstepd\S*): (?:error: )?", "", line)


def _code(how: str) -> int:
    if found := _CODE.search(how):
        code = int(found[1])
        # a shell or a container runtime reports its child's signal so
        return -(code - 128) if code > 128 and code - 128 in signal.valid_signals() else code
    words = re.sub(r"\s*\(core dumped\)$", "", how)
    if words.startswith("Out Of Memory"):
        return -signal.SIGKILL
    return -_SIGNALS.get(words, signal.SIGKILL)


def _numbers(text: str) -> list[int]:
    """'0,2-4' as [0, 2, 3, 4]."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found += range(int(first), int(last or first) + 1)
    return found


#: Where srun itself speaks, beside the ranks' own logs.
SRUN_LOG = "srun.log"
#: srun may live on for a while after the first bad exit; that long, then the step is ended.
GRACE_S = 20.0
#: slurmstepd's words are among the last that stand in a rank's log.
RANK_LOG_BYTES = 64 * 1024


@dataclass
class StepRanks(RankSet):
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
    term_s: float = 6.0  # srun kills its tasks and waits until the nodes say so
    kill_s: float = 20.0
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
    def all_ended(self) -> bool:
        return self.process is None or self.code is not None

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

    def signal(self, number: signal.Signals) -> None:
        """To srun, which ends its tasks; Slurm itself cleans up its nodes."""
        if self.process is not None:
            self.process.send_signal(number)

    def wait(self, seconds: float) -> None:
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)


def _size_of(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return 0
