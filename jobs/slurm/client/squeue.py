"""What the queue holds now: one squeue for all jobs of the user, or for some by their ids.

Jobs are known by their ids and by what they were submitted with, never by their names: a site's
plugin, or `scontrol update JobName=`, may change these. No answer, and one that cannot be read, is
a SlurmError.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from jobs.slurm.client.run import SlurmError, run

#: The job waits; those of the second row until somebody releases them.
PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED",
                     "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})  # fmt: skip
#: It will not run again under this id unless it is requeued, and then its state is another one. In
#: any other state its programs may still write.
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
                   "PREEMPTED", "BOOT_FAIL", "DEADLINE"})  # fmt: skip

#: Between fields and before each job: characters that neither reasons nor (newlines!) names hold.
FIELD, START = "\x1f", "\x1e"
_COLUMNS = ("%A", "%F", "%K", "%T", "%r", "%S", "%M", "%N", "%k", "%o", "%j")
#: The header's first column. An answer has the header even where there are no jobs.
_HEADER = "JOBID"
#: --format has no exit code, and --Format pads or cuts its fields: good for numbers alone.
_EXIT_COLUMNS = "ArrayJobID:20,ArrayTaskID:20,exit_code:20"
_UNKNOWN_ID = "Invalid job id specified"
NOTHING = frozenset({"", "N/A", "n/a", "None", "(null)", "Unknown", "NONE", "None assigned"})


@dataclass(frozen=True)
class JobState:
    """One job, or one element of an array, as Slurm describes it."""

    job: str  # A_I for an element of array A, else J
    state: str  # Slurm's own word
    reason: str = ""  # Slurm's own words
    start: datetime | None = None  # began then, or is expected to begin then
    elapsed: str = ""  # as Slurm writes it: 1-02:03:04 or 3:04
    nodes: str = ""  # as Slurm writes it: node[1-2]
    name: str = ""
    comment: str = ""
    command: str = ""  # the batch script, as sbatch was given it
    code: int | None = None  # exit code of the batch script, where it was asked for
    signal: int | None = None  # that ended the batch script
    source: Literal["squeue", "sacct"] = "squeue"

    @property
    def ended(self) -> bool:
        """Whether Slurm is done with it; a state that we do not know counts as alive."""
        return self.state in ENDED

    @property
    def waits(self) -> bool:
        return self.state in PENDING

    @property
    def array(self) -> str:
        """The id that sbatch gave: A of A_I, else J."""
        return self.job.partition("_")[0]


def squeue_argv(arrays: Collection[str] | None = None) -> list[str]:
    """Every job of the user, ended ones and hidden partitions too, array elements apart.

    ``arrays``: only jobs and arrays with these ids.
    """
    argv = ["squeue", "--all", "--local", "--array", "--states=all"]
    argv.append(f"--user={os.getuid()}")
    return argv if arrays is None else [*argv, f"--jobs={','.join(arrays)}"]


def query(*, arrays: Collection[str] | None = None, patience_s: float = 0) -> dict[str, JobState]:
    """The user's jobs by job id, in one call; ``arrays``: only those with these ids.

    Slurm forgets an ended job some minutes after its end (MinJobAge, often 300 s), so a job that is
    not in the answer may have been in the queue.
    """
    argv = squeue_argv(arrays)
    form = f"--format={START}{FIELD.join(_COLUMNS)}"
    answer = run([*argv, form], patience_s=patience_s)
    jobs = parse(answer.out)
    # of a single id that it does not know squeue says so; of several it lists the others
    if arrays is not None and _UNKNOWN_ID in answer.causes:
        return jobs
    # for an unknown user it prints an error and the header alone, and ends with 0 (22.05)
    refused = not jobs and "invalid user" in answer.err.lower()
    if answer.code != 0 or refused or f"{START}{_HEADER}" not in answer.out:
        words = replace(answer, out=answer.out.partition(START)[0]).words
        raise SlurmError(" ".join(argv), f"no list of jobs: {words}", passing=False)
    return jobs


def parse(text: str) -> dict[str, JobState]:
    """The jobs in squeue's answer, by job id; columns that are missing are empty.

    Raises:
        SlurmError: a line lacks a job's id or state: left out, that job would be taken for gone.
    """
    jobs = {}
    # what is before the header is no job: with several clusters, a line with the cluster's name
    for line in text.split(START)[1:]:
        fields = line.removesuffix("\n").split(FIELD, len(_COLUMNS) - 1)
        if fields[0] == _HEADER:
            continue
        if len(fields) < 4 or not (fields[0].isdigit() and fields[3]):
            raise SlurmError("squeue", f"no id or no state of a job in {line!r}", passing=False)
        fields += [""] * (len(_COLUMNS) - len(fields))
        number, array, index, state, reason, start, elapsed, nodes, comment, command, name = (
            "" if field in NOTHING else field for field in fields
        )
        job = f"{array}_{index}" if index.isdigit() else number
        jobs[job] = JobState(
            job, state, reason, _time(start), elapsed, nodes, name, comment, command
        )
    return jobs


def _time(text: str) -> datetime | None:
    """From seconds since 1970 or, where a site's wrapper sets its own SLURM_TIME_FORMAT, from this
    machine's local time; of an hour that comes twice, the second one."""
    with suppress(ValueError, OverflowError, OSError):  # as far as datetime goes
        if text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC)
        return datetime.fromisoformat(text).replace(fold=1).astimezone(UTC)
    return None


def exit_codes(arrays: Collection[str]) -> dict[str, tuple[int | None, int | None]]:
    """Exit code and signal of the batch scripts of these jobs and arrays, by job id, for as long as
    the controller knows them.
    """
    argv = [*squeue_argv(arrays), "--noheader", f"--Format={_EXIT_COLUMNS}"]
    lines = run(argv).out.splitlines()
    rows = [fields for line in lines if len(fields := line.split()) == 3]
    return {
        f"{array}_{index}" if index.isdigit() else array: read_exit(text)
        for array, index, text in rows
    }


def read_exit(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal from Slurm's CODE:SIGNAL, or from the status of wait(2), which squeue
    prints in versions before 23.02."""
    if text.isdigit():
        return int(text) >> 8 & 0xFF, int(text) & 0x7F or None
    found = re.fullmatch(r"(\d+):(\d+)", text)
    return (int(found[1]), int(found[2]) or None) if found else (None, None)
