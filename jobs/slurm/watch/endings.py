"""How and when a job ended, in plain words, for cells whose supervisor left no record."""

from __future__ import annotations

import math
import re
import signal
from datetime import datetime, timedelta
from fnmatch import fnmatch

from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import Ending, History
from jobs.slurm.client.squeue import JobState
from jobs.slurm.script import NO_TASKS
from train.record.run import Status

#: Slurm's word, its exit code and its signal (FAILED 127:0); status of the record, and a sentence.
#: The first that fits counts. None is good: a supervisor would have said so itself.
_ENDS: tuple[tuple[str, Status, str], ...] = (
    ("OUT_OF_MEMORY *", "failed", "it used more memory than it had asked for, and was ended"),
    ("CANCELLED *", "cancelled", "it was cancelled, by scancel or by the site"),
    ("TIMEOUT *", "timeout", "Slurm ended it at its time limit"),
    ("DEADLINE *", "timeout", "Slurm ended it at its deadline"),
    ("PREEMPTED *", "preempted", "Slurm ended it for a job of higher priority"),
    ("NODE_FAIL *", "lost", "a node that it ran on failed"),
    ("BOOT_FAIL *", "lost", "a node that it was to run on did not come up"),
    ("COMPLETED *", "lost", "Slurm says that it completed, yet it left no record"),
    # slurmstepd's "signal" for a job whose output files cannot be made
    ("FAILED *:53", "failed", "Slurm could not open the job's log on the node (ExitCode 0:53), so "
     "nothing was started: the node does not see the results folder, or may not write there. Name "
     "a folder on a file system that all nodes share with RESULTS=DIR"),
    ("FAILED *:[1-9]*", "lost", "its supervisor was ended by {signal}"),
    # of the batch script, before the supervisor has begun
    ("FAILED 127:*", "failed", "its batch script found no Python on the node (exit code 127): the "
     "environment of this checkout must be at the same path on all nodes; PYTHON= names one that "
     "is"),
    ("FAILED 126:*", "failed", "its batch script may not run the Python of this checkout on the "
     "node (exit code 126): the folders on its way must be open to you there"),
    (f"FAILED {NO_TASKS}:*", "failed", "the node does not see the results folder: name one on a "
     "file system that all nodes share with RESULTS=DIR"),
    ("FAILED [0-9]*", "failed", "its batch script ended with exit code {code}{because}"),
    ("*", "lost", "Slurm says {state}{because}"),
)  # fmt: skip


def status_of(ending: Ending) -> tuple[Status, str]:
    """The status of a record for an attempt that left none, and a sentence about its end."""
    state = "OUT_OF_MEMORY" if ending.out_of_memory else ending.state
    code = "?" if ending.code is None else ending.code
    end = f"{state} {code}:{ending.signal or 0}"
    status, text = next((status, text) for fits, status, text in _ENDS if fnmatch(end, fits))
    because = f" ({ending.reason})" if ending.reason not in ("", "NonZeroExitCode") else ""
    nodes = f" (on {ending.nodes})" if ending.nodes else ""
    name = _signal_name(ending.signal or 0)
    return status, text.format(signal=name, code=code, state=state, because=because) + nodes


def words(job: str, ending: Ending | None) -> tuple[Status, str]:
    """Status and words for a job that is gone."""
    if ending is None or not ending.over:
        return "lost", f"Slurm no longer knows job {job}"
    status, text = status_of(ending)
    return status, f"job {job}: {text}"


def end_of(job: str, slurm_conf: str | None) -> str:
    """How a single job ended, in words."""
    try:
        return words(job, History(slurm_conf).endings([job]).get(job))[1]
    except SlurmError as error:
        return f"job {job}; Slurm gives no answer: {error}"


def over_for_s(job: JobState) -> float:
    """Seconds since an ended job's end; infinite where it never began."""
    ran_s = seconds_of(job.elapsed)
    if job.start is None or ran_s is None:
        return math.inf
    try:
        began = datetime.fromisoformat(job.start)
    except ValueError:
        return math.inf
    # both without a zone, as Slurm's times are
    return (datetime.now() - began - timedelta(seconds=ran_s)).total_seconds()


def seconds_of(elapsed: str) -> float | None:
    """Slurm's D-HH:MM:SS, HH:MM:SS or MM:SS; None where it says something else."""
    parts = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", elapsed)
    if parts is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
