"""Hand arrays to Slurm through submitit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import submitit

from jobs.slurm.commands import SlurmError, clean_environment
from jobs.slurm.script import executor_python

#: submitit's files of one call of sbatch: pickles, so private, and the supervisors' logs.
PRIVATE = 0o700
#: sbatch's words for a request that will be refused tomorrow, too.
_WRONG = (
    "invalid", "not available", "not permitted", "permission denied", "exceeds", "can not be",
    "cannot be", "unrecognized option", "requires an argument", "more processors", "more nodes",
    "required account",
)  # fmt: skip


def submit_array(
    function: Callable[[dict[str, Any]], object],
    told: Sequence[dict[str, Any]],
    folder: Path,
    parameters: Mapping[str, Any],
    slurm_conf: str | None,
) -> str:
    """One call of sbatch: an array with one element per entry of ``told``, else a plain job.

    ``function`` is pickled by reference, with plain values: it loads on any Python. ``folder`` is
    made anew, for its owner alone: to read a pickle is to run its code.

    Returns:
        The job id, of the array as a whole.

    Raises:
        SlurmError: sbatch refused (``passing`` is false where the request itself is wrong), or gave
            no answer. The job may be in the queue all the same.
    """
    folder.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    folder.parent.chmod(PRIVATE)
    folder.mkdir(mode=PRIVATE)
    with _environment(clean_environment(os.environ, slurm_conf)):
        try:
            executor = submitit.SlurmExecutor(folder=folder, python=executor_python())
            executor.update_parameters(**parameters)
            with executor.batch():
                jobs = [executor.submit(function, entry) for entry in told]
        except submitit.core.utils.FailedJobError as error:
            said = _complaint(str(error))
            raise SlurmError("sbatch", said, passing=not _is_wrong(said)) from error
        except RuntimeError as error:  # no srun on the PATH
            raise SlurmError("sbatch", str(error), passing=False) from error
    return str(jobs[0].job_id).partition("_")[0]


def log_name(job: str) -> str:
    """Name of the supervisor's log in the array's folder, by the job's name (A_I or J)."""
    return f"{job}_0_log.out"


def _complaint(text: str) -> str:
    """sbatch's own words in submitit's message."""
    lines = [line.strip() for line in text.splitlines() if "error" in line.lower()]
    return " ".join(dict.fromkeys(lines)) or " ".join(text.split())


def _is_wrong(said: str) -> bool:
    return any(words in said.lower() for words in _WRONG)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """sbatch takes options, and the job its environment, from ours: submitit passes it on."""
    before = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
