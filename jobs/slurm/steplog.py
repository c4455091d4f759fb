"""What Slurm says about a step, line by line: which rank ended how, and what was done to the step.

srun speaks on its own error output, the nodes' slurmstepd on that of the ranks. The texts are those
of Slurm 22.05 as recorded in tests/jobs/slurm/transcripts/srun, and of its sources; a line of
another form is kept for the record's log and decides nothing.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

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
