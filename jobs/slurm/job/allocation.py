"""The job that this process runs in: its id, its end, its warnings, and what Slurm says of it."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.config.site import Site
from jobs.slurm.client.run import SlurmError, asker

#: By these Slurm warns a job of its end, often twice.
WARNINGS = (signal.SIGUSR2,)
#: Slurm may warn a job of its time limit up to a minute too early (its own resolution).
EARLY_S = 75.0


@dataclass(frozen=True)
class Allocation:
    """What the batch job's environment says."""

    #: A_I for an element of an array. Its SLURM_JOB_ID is a number of its own, except that the
    #: element which Slurm starts last has the array's id, and that stands for all elements.
    job: str
    restarts: int
    ends_at: float  # seconds since 1970
    site: Site
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
            site=site,
            nodes=environment.get("SLURM_JOB_NODELIST", ""),
        )

    @property
    def warning_due(self) -> float:
        """When Slurm was asked to warn the job of its end."""
        return self.ends_at - self.site.signal_s

    def is_early(self, warned_at: float) -> bool:
        """Whether a warning at that time was not for the job's time limit."""
        return warned_at <= self.warning_due - EARLY_S

    def is_due(self, warned_at: float) -> bool:
        """Whether a warning calls for a stop now: ranks keep to the time limit by themselves."""
        return self.is_early(warned_at) or time.time() >= self.warning_due

    def ask(self, *argv: str, timeout_s: float = 5) -> str:
        """Run one of Slurm's programs; a job that is being ended has no more time than that.

        Raises:
            SlurmError: no answer, or a refusal.
        """
        return asker(patience_s=0, timeout_s=timeout_s)(argv)

    def shown(self) -> str:
        """What Slurm says of this job, in one line; raises as :meth:`ask`."""
        return self.ask("scontrol", "--all", "--oneliner", "show", "job", self.job)

    def not_answering(self) -> list[str]:
        """Nodes of the job that Slurm cannot reach; none where it does not answer.

        It takes a while to notice (SlurmdTimeout, often 300 s), so its own word may come too late;
        a node whose state it prints with a * is not answering now.
        """
        if not self.nodes:
            return []
        try:
            shown = self.ask("sinfo", "--all", "-h", "-N", "-n", self.nodes, "-o", "%N|%T")
        except SlurmError:
            return []
        return sorted(set(re.findall(r"(?m)^(\S+)\|(?:down\S*|\S*\*)$", shown)))
