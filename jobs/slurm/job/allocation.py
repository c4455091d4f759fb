"""The job that this supervisor runs in: its id, its end, its warnings, and why it is stopped."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType

from jobs.cell.stop import Reason, Stop
from jobs.slurm.client.run import SlurmError, run
from train.record.run import Status

#: Signals reach ranks and supervisor in any order; the other one gets this long.
PATIENCE_S = 4.0
ASK_TIMEOUT_S = 5.0
#: An end this close to the time limit is taken for the limit's.
NEAR_END_S = 10.0
#: Slurm may warn a job this much earlier than asked (its own resolution).
EARLY_S = 75.0


@dataclass
class Warned:
    """Set when Slurm warns the job of its end (USR2, which often comes twice)."""

    at: float | None = None


@contextlib.contextmanager
def warned_by_signal() -> Iterator[Warned]:
    warned = Warned()

    def remember(_number: int, _frame: FrameType | None) -> None:
        warned.at = warned.at or time.time()

    before = signal.signal(signal.SIGUSR2, remember)
    try:
        yield warned
    finally:
        signal.signal(signal.SIGUSR2, before)


@dataclass(frozen=True)
class Allocation:
    """What the batch job's environment says."""

    #: A_I for an element of an array. Its SLURM_JOB_ID is a number of its own, except that the
    #: element which Slurm starts last has the array's id, and that stands for all elements.
    job: str
    node: str
    restarts: int
    ends_at: float  # seconds since the epoch
    slurm_conf: str | None
    signal_s: float = 0.0  # asked to be warned this long before
    nodes: str = ""  # of this start, as Slurm writes them: node[1-2]

    @classmethod
    def read(
        cls,
        environment: Mapping[str, str],
        minutes: int,
        slurm_conf: str | None,
        signal_s: float = 0.0,
    ) -> Allocation:
        """Raises KeyError outside a Slurm job."""
        job = environment["SLURM_JOB_ID"]
        array, element = (environment.get(f"SLURM_ARRAY_{n}_ID") for n in ("JOB", "TASK"))
        end = environment.get("SLURM_JOB_END_TIME", "")
        return cls(
            job=f"{array}_{element}" if array and element else job,
            node=environment.get("SLURMD_NODENAME", os.uname().nodename),
            restarts=int(environment.get("SLURM_RESTART_COUNT") or 0),
            # older Slurms do not tell: the limit then counts from now, when the job has begun
            ends_at=float(end) if end.isdigit() else time.time() + 60 * minutes,
            slurm_conf=slurm_conf,
            signal_s=signal_s,
            nodes=environment.get("SLURM_JOB_NODELIST", ""),
        )


def warned_why(allocation: Allocation, at: float) -> Reason | None:
    """Why Slurm warned the job at that time, where that was not for its time limit."""
    due = allocation.ends_at - allocation.signal_s
    if at > due - EARLY_S:
        return None
    return Reason("preempted", f"Slurm warned job {allocation.job} long before its time was over")


def is_due(allocation: Allocation, warned_at: float, now: float) -> bool:
    """Whether a warning calls for a stop now: Slurm warns of a time limit up to a minute too early,
    and ranks keep to that limit by themselves."""
    early = warned_why(allocation, warned_at) is None
    return not early or now >= allocation.ends_at - allocation.signal_s


def why(allocation: Allocation, stop: Stop, *, step_cancelled: bool) -> Reason | None:
    """Why Slurm ends this job: asked of the signal, the clock, and Slurm itself.

    ``step_cancelled``: the ranks were ended from outside, so a signal is to be expected here, too.
    """
    deadline = time.monotonic() + (PATIENCE_S if step_cancelled else 0)
    while stop.reason is None and time.monotonic() < deadline:
        time.sleep(0.1)
    if stop.reason is None:
        return None
    if time.time() > allocation.ends_at - NEAR_END_S:
        return Reason("timeout", f"the job's time limit was reached (job {allocation.job})")
    try:
        argv = ["scontrol", "--all", "--oneliner", "show", "job", allocation.job]
        answer = run(argv, timeout_s=ASK_TIMEOUT_S, slurm_conf=allocation.slurm_conf)
    except SlurmError:
        return stop.reason
    if reason := reason_in(answer.out, allocation.job):
        return reason
    if nodes := not_answering(allocation):
        return Reason("lost", f"Slurm ended job {allocation.job}: it does not reach {nodes}")
    return Reason(
        "cancelled", f"Slurm ended job {allocation.job} before its time: scancel, or the site"
    )


#: What `scontrol show job` says of a job that is being ended -> status and words.
_ENDS: tuple[tuple[str, Status, str], ...] = (
    ("NODE_FAIL|NodeFail|node_fail", "lost", "a node of it failed"),
    ("PREEMPT|Preempt", "preempted", "it was preempted"),
    ("TIMEOUT|TimeLimit", "timeout", "its time limit was reached"),
    ("OUT_OF_MEMORY|OutOfMemory", "failed", "it used more memory than it had asked for"),
    ("CANCELLED", "cancelled", "it was cancelled"),
)


def reason_in(text: str, name: str) -> Reason | None:
    """The reason in the output of ``scontrol show job -o``.

    A job that is being ended is COMPLETING there, and what ends it is often not told.
    """
    if re.search(r"\bPreemptTime=\d", text):
        return Reason("preempted", f"Slurm ended job {name} for a job of higher priority")
    state = " ".join(re.findall(r"\b(?:JobState|Reason)=(\S*)", text))
    for pattern, status, words in _ENDS:
        if re.search(pattern, state):
            return Reason(status, f"Slurm ended job {name}: {words} ({state.split()[0]})")
    return None


def excluded(allocation: Allocation) -> str:
    """Nodes that the job may not have, as Slurm writes them; '' where there are none."""
    argv = ["scontrol", "--all", "--oneliner", "show", "job", allocation.job]
    with contextlib.suppress(SlurmError):
        answer = run(argv, timeout_s=ASK_TIMEOUT_S, slurm_conf=allocation.slurm_conf)
        found = re.search(r" ExcNodeList=([^\s(]+)", answer.out)
        return found[1] if found else ""
    return ""


def not_answering(allocation: Allocation) -> str:
    """Nodes of the job that Slurm cannot reach, with their states; '' where all answer.

    It takes a while to notice (SlurmdTimeout, often 300 s), so its own word may come too late;
    what it says with a * is not answering now.
    """
    if not allocation.nodes:
        return ""
    argv = ["sinfo", "--all", "-h", "-N", "-n", allocation.nodes, "-o", "%N %T"]
    try:
        answer = run(argv, timeout_s=ASK_TIMEOUT_S, slurm_conf=allocation.slurm_conf)
    except SlurmError:
        return ""
    lines = sorted({line.strip() for line in answer.out.splitlines()})
    return ", ".join(line for line in lines if line.endswith("*") or " down" in line)
