"""The ranks of one start as a Slurm step: one srun, watched through what Slurm says of it.

srun speaks on its own error output, the nodes' slurmstepd on that of the ranks. The texts are those
of Slurm 22.05 as recorded in the transcripts of the tests, and of its sources; a line of another
form is kept for the record's log and decides nothing.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TextIO

from jobs.cell.ranks import Ended, RankSet
from jobs.cell.stop import Reason, Stop
from train.errors import start_error
from train.program.environment import environment_of

_OWN = re.compile(r"(?:srun|slurmstepd)\S*: ")
_ENDED = re.compile(
    r"^(?:srun: )?error: (?P<host>\S+): tasks? (?P<ranks>\d[\d,\-]*): (?P<how>.+?)\s*$"
)
_STEP_ENDED = re.compile(r"\*\*\* (?:STEP|JOB) \S+ ON \S+ (?P<how>CANCELLED.*?) \*\*\*")
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
#: Lines of slurmstepd among what a rank wrote.
SLURMSTEPD = "slurmstepd"
#: strsignal's words, as srun prints them
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}

#: An argument list, and what it adds to the job's environment.
StepLine = tuple[list[str], dict[str, str]]
#: What srun itself prints, next to the ranks' own logs.
SRUN_LOG = "srun.log"
#: slurmstepd's words are among the last that stand in a rank's log.
RANK_LOG_BYTES = 64 * 1024


class RankEnd(NamedTuple):
    """One rank's bad end, as srun reports it."""

    host: str
    code: int


@dataclass
class StepLog:
    """What the lines so far add up to."""

    ends: dict[int, RankEnd] = field(default_factory=dict)  # by rank, in the order reported
    out_of_memory: str | None = None
    out_of_memory_rank: int | None = None  # in whose log Slurm said so
    node_failure: str | None = None  # the node; "?": one without its name
    cancelled: str | None = None  # "CANCELLED AT ... DUE TO TIME LIMIT"
    aborted: bool = False  # ended from outside: a signal to it, its job, or srun
    launch_failure: str | None = None

    def read(self, line: str, rank: int | None = None) -> None:
        """``rank``: in whose log the line is; None: in srun's own."""
        line = re.sub(r"^(srun|slurmstepd): (srun|slurmstepd): ", r"\1: ", line.strip())
        if not _OWN.match(line):
            return  # of the loader (LD_PRELOAD), or of a site's tracer
        if self.out_of_memory is None and _MEMORY.search(line):
            self.out_of_memory, self.out_of_memory_rank = _plain(line), rank
        if ended := _ENDED.match(line):
            ranks, end = _numbers(ended["ranks"]), RankEnd(ended["host"], _code(ended["how"]))
            self.ends |= dict.fromkeys(ranks, end)
            if self.out_of_memory_rank is None and _MEMORY.search(ended["how"]):
                self.out_of_memory_rank = ranks[0]
        if (node := _NODE.search(line)) and self.node_failure in (None, "?"):
            self.node_failure = node["host"] or "?"
        if step := _STEP_ENDED.search(line):
            self.cancelled = self.cancelled or step["how"]
        # not printed when srun ends the step after a rank's bad exit
        self.aborted = self.aborted or "Job step aborted" in line
        launch = _LAUNCH.match(line)
        # the latter says best what is wrong, after lines that say less
        if launch and (not self.launch_failure or launch["text"].startswith("Invalid MPI type")):
            self.launch_failure = launch["text"]


def _plain(line: str) -> str:
    return re.sub(r"^(?:srun|slurmstepd\S*): (?:error: )?", "", line)


def _code(how: str) -> int:
    """A rank's exit code; negative: the signal that ended it."""
    if exited := re.search(r"Exited with exit code (\d+)", how):
        code = int(exited[1])
        # a shell or a container runtime reports its child's signal so
        return 128 - code if code - 128 in signal.valid_signals() else code
    return -_SIGNALS.get(how.removesuffix(" (core dumped)"), signal.SIGKILL)


def _numbers(text: str) -> list[int]:
    """'0,2-4' as [0, 2, 3, 4]."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        numbers += range(int(first), int(last or first) + 1)
    return numbers


@dataclass
class StepRanks(RankSet):
    """All ranks of one step. ``log``: what srun itself prints; each rank's output, and what its
    node says of it, is in rank-N.log next to it.

    A rank that ends with another code than 0 makes srun end the others (--kill-on-bad-exit), so
    only the first that it names ended by itself.
    """

    log: Path
    grace_s: float = 20.0  # srun brings about the step's end sooner, as a rule
    poll_s: float = 0.2  # what follows within REACTION_S of an end is judged by its time
    term_s: float = 6.0  # srun kills its tasks and waits until the nodes confirm it
    kill_s: float = 20.0
    ended: dict[int, Ended] = field(default_factory=dict)
    asked_at: float | None = None
    said: StepLog = field(default_factory=StepLog)
    code: int | None = None  # srun's own
    _process: subprocess.Popen[bytes] | None = None
    _reader: TextIO = field(default_factory=io.StringIO)  # of the log
    _half_line: str = ""
    _sizes: list[int] = field(default_factory=list)  # of each rank's log, from earlier starts

    def start(self, argv: Sequence[str], settings: Mapping[str, str], size: int) -> None:
        """``settings``: what the line adds to the job's environment."""
        self._sizes = [0] * size
        for rank in range(size):
            with contextlib.suppress(OSError):
                self._sizes[rank] = self.log_of(rank).stat().st_size
        environment = environment_of("step", os.environ) | dict(settings)
        with self.log.open("ab") as out:
            self._reader = self.log.open(encoding="utf-8", errors="replace")
            self._reader.seek(0, os.SEEK_END)
            try:
                self._process = subprocess.Popen(
                    argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise start_error(error, argv[0], environment) from error

    def run(self, line: StepLine, size: int, stop: Stop, limit_s: float) -> Reason | None:
        """Start and watch the ranks to their end, which comes at the latest when the job is stopped
        or ``limit_s`` seconds are over; returns why they were stopped."""
        late = Reason("timeout", f"it took longer than {limit_s:.0f} s")
        end_at = time.monotonic() + limit_s
        self.start(*line, size)
        try:
            return self.watch(lambda: stop.reason or (late if time.monotonic() > end_at else None))
        finally:
            self.end()

    @property
    def size(self) -> int:
        return len(self._sizes) if self._process else 0

    @property
    def all_ended(self) -> bool:
        return self._process is None or self.code is not None

    def place(self, rank: int) -> str:
        return f"node {self.said.ends[rank].host}" if rank in self.said.ends else "the step"

    def signal(self, number: signal.Signals) -> None:
        """To srun, which ends its tasks; Slurm itself cleans up its nodes."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)

    def poll(self) -> None:
        if self._process is None or self.code is not None:
            return
        code = self._process.poll()
        self._read_log(to_end=code is not None)
        if code is None:
            return
        self.code = code
        self._reader.close()
        self._read_words_of_nodes()
        for rank in self.unended:
            # unnamed ranks of a good step ended well; of a bad one they were ended with it
            self.ended[rank] = Ended(0 if code == 0 else -signal.SIGKILL, time.time(), code != 0)

    def _read_log(self, *, to_end: bool) -> None:
        """Read the new lines; a last one without its end only once srun has ended."""
        with contextlib.suppress(OSError):
            self._half_line += self._reader.read()
        *lines, self._half_line = self._half_line.split("\n")
        for line in (*lines, self._half_line) if to_end else lines:
            # also a rank that stopped on purpose makes srun end the others
            by_us = self.asked_at is not None or any(end.code for end in self.ended.values())
            self.said.read(line)
            for rank, end in self.said.ends.items():
                if rank < self.size and rank not in self.ended:
                    self.ended[rank] = Ended(end.code, time.time(), by_us)

    def _read_words_of_nodes(self) -> None:
        for rank, earlier in enumerate(self._sizes):
            log = self.log_of(rank)
            with contextlib.suppress(OSError), log.open(encoding="utf-8", errors="replace") as file:
                file.seek(max(earlier, log.stat().st_size - RANK_LOG_BYTES))
                for line in file:
                    if line.startswith(SLURMSTEPD):
                        self.said.read(line, rank)

    def log_of(self, rank: int) -> Path:
        return self.log.with_name(f"rank-{rank}.log")
