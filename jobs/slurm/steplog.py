"""What srun says about a step, line by line: which rank ended how, and what Slurm did to the step.

The texts are those of Slurm 20 to 25 (``launch_p_step_exit`` and its like); a line of another form
is kept for the record's log and decides nothing.
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
_MEMORY = re.compile(r"exceeded memory limit|oom-kill event|oom_kill event|Out Of Memory", re.I)
_NODE = re.compile(r"[Nn]ode failure on (?P<host>\S+)|DUE TO NODE FAILURE")
_LAUNCH = re.compile(
    r"(?:srun: )?error: (?P<text>Task launch for \S+ failed on node \S+:.*|Unable to create step.*|"
    r"Application launch failed:.*|Unable to (?:confirm|allocate).*|Couldn't find the specified.*|"
    r"Invalid (?:MPI|generic resource).*|.*(?:MPI|mpi) plugin.*)"
)
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
    node_failure: str | None = None
    cancelled: str | None = None  # "CANCELLED AT ... DUE TO TIME LIMIT"
    launch_failure: str | None = None

    def read(self, line: str) -> None:
        line = re.sub(r"^(srun|slurmstepd): (srun|slurmstepd): ", r"\1: ", line.strip())
        if found := _ENDED.match(line):
            code = _code(found["how"])
            for rank in _numbers(found["ranks"]):
                self.ends.append(RankEnd(rank, found["host"], code, found["how"]))
        if _MEMORY.search(line):
            self.out_of_memory = self.out_of_memory or _plain(line)
        if found := _NODE.search(line):
            self.node_failure = self.node_failure or found["host"] or _plain(line)
        if found := _STEP_ENDED.search(line):
            self.cancelled = self.cancelled or found["how"]
        if found := _LAUNCH.match(line):
            self.launch_failure = self.launch_failure or found["text"]


def _plain(line: str) -> str:
    return re.sub(r"^(?:srun|slurmstepd): (?:error: )?", "", line)


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
