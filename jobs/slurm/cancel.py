"""`make cancel`: end all jobs of a sweep, noted or not, in as few calls as can be."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from jobs.slurm.commands import Answer, ask
from jobs.slurm.queue import JobState

#: scancel takes many ids; a command line does not take any number of them.
MAX_IDS = 500
#: scancel says so of jobs that ended meanwhile, and of arrays whose elements all have.
_OVER = ("already completing or completed", "invalid job id specified")


def alive(queue: Mapping[str, JobState]) -> dict[str, int]:
    """Array or job id -> how many of its jobs are alive."""
    found: dict[str, int] = {}
    for job in queue.values():
        if not job.ended and job.state not in ("COMPLETING", "STAGE_OUT"):
            found[job.array] = found.get(job.array, 0) + 1
    return found


def cancel_argvs(arrays: Iterable[str], name: str | None, user: int) -> list[list[str]]:
    """One call for all ids; by name where none is known. Whole arrays: one id each."""
    ids = sorted(set(arrays), key=lambda array: (len(array), array))
    if ids:
        return [["scancel", *ids[at : at + MAX_IDS]] for at in range(0, len(ids), MAX_IDS)]
    # scancel cuts names at commas
    if name and "," not in name:
        return [["scancel", f"--user={user}", f"--name={name}"]]
    return []


def cancel(
    arrays: Iterable[str],
    slurm_conf: str | None,
    *,
    name: str | None = None,
    user: int | None = None,
    patience_s: float = 30,
) -> Answer:
    """Tell Slurm to end these jobs: supervisors get SIGTERM and leave records of status cancelled.

    ``name``: of the sweep's jobs, for when no id is known. May be repeated. Code 0 when all were
    told to end or had ended already, else what scancel complained of.

    Raises:
        SlurmError: no answer; some jobs may have been told all the same.
    """
    told = Answer(0, "", "")
    for argv in cancel_argvs(arrays, name, os.getuid() if user is None else user):
        answer = ask(argv, patience_s=patience_s, slurm_conf=slurm_conf)
        refusals = [line for line in answer.err.splitlines() if not _is_over(line)]
        if answer.code and refusals:
            told = Answer(answer.code, told.out + answer.out, told.err + "\n".join(refusals))
    return told


def _is_over(line: str) -> bool:
    return not line.strip() or any(words in line.lower() for words in _OVER)
