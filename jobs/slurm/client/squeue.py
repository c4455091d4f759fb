"""What the queue holds now: one squeue for all jobs of the user, and Slurm's words made plain.

Jobs are known by their ids, by what they were submitted as, never by their names: a site's plugin,
or `scontrol update JobName=`, may change these.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from jobs.slurm.client.run import Answer, SlurmError, ask

#: The job waits; those of the second row until somebody releases them.
PENDING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED",
                     "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})  # fmt: skip
#: It has nodes, or is about to give them back: what it runs may still write. REVOKED: another
#: cluster of the federation runs it.
RUNNING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT",
                     "RESIZING", "REVOKED"})  # fmt: skip
#: It will not run again under this id unless it is requeued, and then it says so.
ENDED = frozenset({"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
                   "PREEMPTED", "BOOT_FAIL", "DEADLINE"})  # fmt: skip

#: Between fields and before each job: signs that neither reasons nor (newlines!) names hold.
FIELD, START = "\x1f", "\x1e"
_COLUMNS = ("%A", "%F", "%K", "%T", "%r", "%S", "%M", "%N", "%k", "%o", "%j")
#: squeue takes many ids; a command line does not take any number of them.
MAX_IDS = 500
UNKNOWN_ID = "invalid job id"
#: The end of a whole answer in the shared file.
END = "\x1d"
_BYTES = ("utf-8", "surrogateescape")
FORMAT = START + FIELD.join(_COLUMNS)
_NOTHING = frozenset({"", "N/A", "n/a", "None", "(null)", "Unknown", "NONE"})


@dataclass(frozen=True)
class JobState:
    """One job, or one element of an array, as squeue sees it. Times are the cluster's local ones,
    as text (2026-11-21T15:28:11)."""

    job: str  # A_I for an element of array A, else J
    state: str  # Slurm's own word
    reason: str  # Slurm's own words; '' where it gives none
    start: str | None  # began then, or is expected to begin then
    elapsed: str  # as Slurm writes it: 1-02:03:04 or 3:04
    nodes: str  # as Slurm writes it: node[1-2]
    name: str
    comment: str = ""
    command: str = ""  # the batch script, as sbatch was given it

    @property
    def ended(self) -> bool:
        """Whether Slurm is done with it; a word that we do not know counts as alive."""
        return self.state in ENDED

    @property
    def waits(self) -> bool:
        return self.state in PENDING

    @property
    def array(self) -> str:
        """The id that sbatch gave: A of A_I, else J."""
        return self.job.partition("_")[0]


def squeue_argv(user: int, jobs: Sequence[str] = ()) -> list[str]:
    """Every job of the user, those that ended too, in hidden partitions too, array elements apart;
    ``jobs``: only these ids."""
    argv = ["squeue", "--noheader", "--all", "--local", "--array", "--states=all"]
    argv += [f"--user={user}"]
    argv += [f"--jobs={','.join(jobs)}"] if jobs else []
    return [*argv, f"--format={FORMAT}"]


def query(
    slurm_conf: str | None = None,
    *,
    user: int | None = None,
    patience_s: float = 0,
    timeout_s: float = 30,
) -> dict[str, JobState]:
    """All jobs of the user, by job id, in one call.

    Slurm forgets an ended job some minutes after its end (MinJobAge, often 300 s): a job that is
    not there is not one that never was. ``user``: whose jobs; None: our own.

    Raises:
        SlurmError: no answer, or one that cannot be read.
    """
    argv = squeue_argv(os.getuid() if user is None else user)
    answer = ask(argv, patience_s=patience_s, timeout_s=timeout_s, slurm_conf=slurm_conf)
    return _jobs(argv, answer)


def shared_query(
    slurm_conf: str | None = None, *, patience_s: float = 0, older_s: float = 0
) -> dict[str, JobState]:
    """The same, one question for all sweeps that the user watches: an answer that is at most
    ``older_s`` seconds old does as well, whoever asked.

    Raises:
        SlurmError: no answer.
    """
    argv = squeue_argv(os.getuid())
    with _shared(_where(slurm_conf)) as handle:
        if handle is not None and older_s > 0 and (jobs := _recent(handle, older_s)) is not None:
            return jobs
        answer = ask(argv, patience_s=patience_s, slurm_conf=slurm_conf)
        jobs = _jobs(argv, answer)
        if handle is not None:
            with suppress(OSError):  # a courtesy to others
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{time.time()}\n{answer.out}{END}".encode(*_BYTES), 0)
        return jobs


def _where(slurm_conf: str | None) -> str:
    """A name for what decides which cluster answers."""
    told = [slurm_conf, os.uname().nodename, shutil.which("squeue")]
    told += [os.environ.get(name) for name in ("SLURM_CONF", "SLURM_CLUSTERS")]
    return hashlib.sha256(repr(told).encode(*_BYTES)).hexdigest()[:12]


def _recent(handle: int, older_s: float) -> dict[str, JobState] | None:
    """The answer in the file, where it is whole and not too old."""
    with suppress(OSError, ValueError, SlurmError):
        text = os.pread(handle, os.fstat(handle).st_size, 0).decode(*_BYTES)
        at, _, answer = text.partition("\n")
        if 0 <= time.time() - float(at) <= older_s and answer.endswith(END):
            return {job.job: job for job in parse(answer.removesuffix(END))}
    return None


@contextmanager
def _shared(name: str) -> Iterator[int | None]:
    """The user's own file of the last answer, held alone; None where there can be none."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    handle, ours = None, False
    # no home, no room, no locks, or another sweep asks just now
    with suppress(OSError, RuntimeError):
        folder = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
        (folder / "horoscale").mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / "horoscale" / f"squeue-{name}"
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ours = True
    try:
        yield handle if ours else None
    finally:
        if handle is not None:
            os.close(handle)


def query_ids(arrays: Sequence[str], slurm_conf: str | None = None) -> dict[str, JobState]:
    """The jobs with these ids that the controller still knows; whole arrays, each by its id.

    Raises:
        SlurmError: no answer: whether it knows them cannot be told.
    """
    found: dict[str, JobState] = {}
    for at in range(0, len(arrays), MAX_IDS):
        argv = squeue_argv(os.getuid(), arrays[at : at + MAX_IDS])
        answer = ask(argv, slurm_conf=slurm_conf, patience_s=0)
        # of a single id that it does not know it says so; of several it lists the others
        if UNKNOWN_ID not in answer.err.lower():
            found |= _jobs(argv, answer)
    return found


def _jobs(argv: Sequence[str], answer: Answer) -> dict[str, JobState]:
    jobs = parse(answer.out)
    # squeue ends with 0 even where it refuses its options (an unknown user)
    if answer.code != 0 or (not jobs and "error" in answer.err):
        raise SlurmError(" ".join(argv[:6]), answer.words, passing=False)
    return {job.job: job for job in jobs}


def parse(text: str) -> list[JobState]:
    """The jobs in squeue's answer.

    Raises:
        SlurmError: it is not in the format that was asked for.
    """
    # what is before the first job is no job: with several clusters, a line with the cluster's name
    return [_job(part.removesuffix("\n")) for part in text.split(START)[1:]]


def _job(text: str) -> JobState:
    fields = text.split(FIELD, len(_COLUMNS) - 1)
    if len(fields) != len(_COLUMNS):
        raise SlurmError("squeue", f"{len(fields)} fields found, {len(_COLUMNS)} expected in "
                         f"{text!r}", passing=False)  # fmt: skip
    number, array, index, state, reason, start, elapsed, nodes, comment, command, name = fields
    return JobState(
        job=f"{array}_{index}" if index.isdigit() else number,
        state=state,
        reason="" if reason in _NOTHING else reason,
        start=None if start in _NOTHING else start,
        elapsed=elapsed,
        nodes=nodes,
        name=name,
        comment="" if comment in _NOTHING else comment,
        command="" if command in _NOTHING else command,
    )
