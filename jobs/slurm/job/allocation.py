"""The job that this process runs in: its id, its end, its warnings, and what Slurm says of it."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType

from jobs.cell.stop import Stop
from jobs.config.site import Site
from jobs.slurm.client.run import SlurmError, run

ASK_TIMEOUT_S = 5.0
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


def wait(stop: Stop, seconds: float) -> None:
    """Sleep, until there is a reason to stop."""
    deadline = time.monotonic() + seconds
    while stop.reason is None and time.monotonic() < deadline:
        time.sleep(0.1)


@dataclass(frozen=True)
class Allocation:
    """What the batch job's environment says."""

    #: A_I for an element of an array. Its SLURM_JOB_ID is a number of its own, except that the
    #: element which Slurm starts last has the array's id, and that stands for all elements.
    job: str
    restarts: int
    ends_at: float  # seconds since 1970
    slurm_conf: str | None
    signal_s: float = 0.0  # asked to be warned this long before
    nodes: str = ""  # of this start, as Slurm writes them: node[1-2]

    @classmethod
    def read(cls, environment: Mapping[str, str], minutes: int, site: Site) -> Allocation:
        """``minutes``: the job's time limit.

        Raises:
            KeyError: outside a Slurm job.
        """
        job = environment["SLURM_JOB_ID"]
        array, element = (environment.get(f"SLURM_ARRAY_{n}_ID") for n in ("JOB", "TASK"))
        end = environment.get("SLURM_JOB_END_TIME", "")
        return cls(
            job=f"{array}_{element}" if array and element else job,
            restarts=int(environment.get("SLURM_RESTART_COUNT") or 0),
            # older Slurms do not tell: the limit then counts from now, when the job has begun
            ends_at=float(end) if end.isdigit() else time.time() + 60 * minutes,
            slurm_conf=site.slurm_conf,
            signal_s=site.signal_s,
            nodes=environment.get("SLURM_JOB_NODELIST", ""),
        )

    def is_early(self, warned_at: float) -> bool:
        """Whether a warning at that time was not for the job's time limit."""
        return warned_at <= self.ends_at - self.signal_s - EARLY_S

    def is_due(self, warned_at: float) -> bool:
        """Whether a warning calls for a stop now: Slurm warns of a time limit up to a minute too
        early, and ranks keep to that limit by themselves."""
        return self.is_early(warned_at) or time.time() >= self.ends_at - self.signal_s

    def shown(self) -> str:
        """What Slurm says of this job, in one line.

        Raises:
            SlurmError: it gives no answer.
        """
        argv = ["scontrol", "--all", "--oneliner", "show", "job", self.job]
        return run(argv, timeout_s=ASK_TIMEOUT_S, slurm_conf=self.slurm_conf).out

    def not_answering(self) -> str:
        """Nodes of the job that Slurm cannot reach, with their states; '' where all answer.

        It takes a while to notice (SlurmdTimeout, often 300 s), so its own word may come too late;
        what it says with a * is not answering now.
        """
        if not self.nodes:
            return ""
        argv = ["sinfo", "--all", "-h", "-N", "-n", self.nodes, "-o", "%N %T"]
        try:
            answer = run(argv, timeout_s=ASK_TIMEOUT_S, slurm_conf=self.slurm_conf)
        except SlurmError:
            return ""
        lines = sorted({line.strip() for line in answer.out.splitlines()})
        return ", ".join(line for line in lines if line.endswith("*") or " down" in line)
