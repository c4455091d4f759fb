"""How often Slurm is asked, and the wait for a single job."""

from __future__ import annotations

import time

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


def pause_s(every_s: float | None, since: float) -> float:
    """Seconds until the next look. ``every_s``: of the site, where it says so; ``since``: the last
    submission, monotonic: what is wrong with it shows soon."""
    if every_s is not None:
        return every_s
    return FIRST_S if time.monotonic() - since < FIRST_FOR_S else LATER_S


def wait_for(job: str, site: Site, what: str) -> None:
    """Until Slurm says that a job has ended, or no longer knows it, saying as ``what`` why it
    waits.

    Raises:
        SlurmError: no answer, and none is to be expected.
    """
    said, began = "", time.monotonic()
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
        time.sleep(pause_s(site.poll_s, began))


def end_of(job: str) -> str:
    """How a single job ended, in words."""
    try:
        return status_of(job, History().endings([job]).get(job))[1]
    except SlurmError as error:
        return f"job {job}; Slurm gives no answer: {error}"
