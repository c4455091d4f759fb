"""How often Slurm is asked, and the wait for a single job."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from jobs.config.site import Site
from jobs.messages import say
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import query
from jobs.slurm.watch.endings import status_of

#: Seconds between two looks, for a minute after a submission and later. A look is one question to
#: Slurm for all jobs of the user, and a cluster has many users.
FIRST_S, LATER_S = 5.0, 60.0
FIRST_FOR_S = 60.0


@dataclass
class Pace:
    """When to look next. ``every_s``: always after this time; None: as the site did not say."""

    every_s: float | None = None
    _began: float = field(default_factory=time.monotonic)

    def next_s(self) -> float:
        """Seconds until the next look."""
        if self.every_s is not None:
            return self.every_s
        return FIRST_S if time.monotonic() - self._began < FIRST_FOR_S else LATER_S

    def again(self) -> None:
        """Something was submitted: what is wrong with it shows soon."""
        self._began = time.monotonic()


def wait_for(job: str, site: Site, what: str) -> None:
    """Until Slurm says that a job has ended, or no longer knows it, saying as ``what`` why it
    waits.

    Raises:
        SlurmError: no answer, and none is to be expected.
    """
    said, pace = "", Pace(site.poll_s)
    while True:
        try:
            state = query(arrays=[job]).get(job)
            if state is None or state.ended:
                return
            why = in_words(state)
        except SlurmError as error:
            if not error.passing:
                raise
            why = f"Slurm gives no answer ({error})"
        if why not in ("", said):
            say(f"{what}: {why}")
            said = why
        time.sleep(pace.next_s())


def end_of(job: str) -> str:
    """How a single job ended, in words."""
    try:
        return status_of(job, History().endings([job]).get(job))[1]
    except SlurmError as error:
        return f"job {job}; Slurm gives no answer: {error}"
