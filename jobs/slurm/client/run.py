"""Ask Slurm's own programs: token lists, a clean environment, a time limit, a clear "no answer"."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: Options that a user's shell gives to Slurm's programs: they would change what is printed, or
#: what is submitted, behind the back of whoever built the command.
_STRAY = (
    "SBATCH_", "SRUN_", "SALLOC_", "SQUEUE_", "SACCT_", "SINFO_", "SCANCEL_", "SCONTROL_",
    "SLURM_TIME_FORMAT", "SLURM_BITSTR_LEN", "SLURM_JOB", "SLURM_ARRAY_", "SLURM_STEP",
)  # fmt: skip
#: Of an allocation that we were started in, only these still hold for the next job.
_LASTING = frozenset({"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CLUSTER_NAME"})
_INSIDE = frozenset({"SLURM_JOB_ID", "SLURM_JOBID"})

#: What Slurm's programs say when the controller is down, busy or restarting: it may pass.
_PASSING = (
    "unable to contact slurm controller",
    "socket timed out",
    "zero bytes were transmitted or received",
    "connection refused",
    "connection timed out",
    "connection reset",
    "transport endpoint is not connected",
    "controller in standby mode",
    "slurmctld is in a starting state",
    "unexpected message received",
)
#: What they say when this machine or this user cannot talk to Slurm at all.
_LASTING_TROUBLE = (
    "could not establish a configuration source",
    "unable to process configuration file",
    "munge",
    "authentication",
)
NOT_FOUND = 127
#: Lists of array elements in full, not cut at 64 characters.
_WHOLE = {"SLURM_BITSTR_LEN": "0"}
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Answer:
    """What a program said; a code other than 0 is an answer, too (of a refusal, say)."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Its complaint in one line."""
        return " ".join((self.err or self.out).split()) or f"exit code {self.code}"


class SlurmError(RuntimeError):
    """Slurm gave no answer; the text says what was asked and what came.

    ``passing``: the same question may be answered a moment later.
    """

    def __init__(self, asked: str, came: str, *, passing: bool) -> None:
        super().__init__(f"{asked}: {came}")
        self.asked = asked
        self.came = came
        self.passing = passing
        self.refused = False  # of sbatch: the request was certainly not granted
        #: Of sbatch: run, part and array. Unless refused, it may be in the queue all the same.
        self.submission: tuple[str, str, Any] | None = None


def is_lasting(error: SlurmError | OSError) -> bool:
    """Whether the same would be refused again and again."""
    if isinstance(error, SlurmError):
        return not error.passing
    return isinstance(error, PermissionError) or error.errno == errno.EROFS


def clean_environment(
    environment: Mapping[str, str], slurm_conf: str | None = None
) -> dict[str, str]:
    """The environment for squeue, sbatch and the like: no stray options, no earlier allocation,
    messages in English.

    ``slurm_conf``: where the site's configuration lies; None keeps what the environment says.
    """
    inside = not _INSIDE.isdisjoint(environment)
    kept = {
        name: value
        for name, value in environment.items()
        if name in _LASTING
        or not (name.startswith(_STRAY) or (inside and name.startswith("SLURM_")))
    }
    conf = {} if slurm_conf is None else {"SLURM_CONF": slurm_conf}
    return kept | conf | {"LC_ALL": "C"}


def answer_of(
    argv: Sequence[str], *, timeout_s: float = 30, slurm_conf: str | None = None
) -> Answer:
    """Run one of Slurm's programs, once, in a session of its own: a terminal's Ctrl-C ends us, who
    then decide what becomes of it.

    Raises:
        SlurmError: no such program, or no end within ``timeout_s`` seconds.
    """
    asked = shlex.join(argv)
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            env=clean_environment(os.environ, slurm_conf) | _WHOLE,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        came = f"no answer within {timeout_s:g} s"
        raise SlurmError(asked, came, passing=True) from error
    except OSError as error:
        came = f"cannot be started here: {error.strerror}"
        raise SlurmError(asked, came, passing=False) from error
    return Answer(done.returncode, _text(done.stdout), _text(done.stderr))


def run(argv: Sequence[str], *, timeout_s: float = 30, slurm_conf: str | None = None) -> Answer:
    """The same where the controller's silence is no answer.

    Raises:
        SlurmError: also where there is no controller.
    """
    answer = answer_of(argv, timeout_s=timeout_s, slurm_conf=slurm_conf)
    if trouble := _trouble(answer):
        raise SlurmError(shlex.join(argv), answer.words, passing=trouble in _PASSING)
    return answer


def is_away(said: str) -> bool:
    """Whether these are words of a controller that is down, busy or restarting."""
    return any(words in said.lower() for words in _PASSING)


def ask(
    argv: Sequence[str],
    *,
    patience_s: float = 30,
    timeout_s: float = 30,
    slurm_conf: str | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> Answer:
    """Run a program that only asks, or that may be run twice; again while the controller is away.

    Never for sbatch: one that timed out may have submitted all the same.

    Raises:
        SlurmError: no answer within ``patience_s`` seconds (the last try may end later than that),
            or trouble that waiting does not end.
    """
    began = time.monotonic()
    tries = 0
    while True:
        try:
            return run(argv, timeout_s=timeout_s, slurm_conf=slurm_conf)
        except SlurmError as error:
            wait_s = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]
            if not error.passing or time.monotonic() - began + wait_s > patience_s:
                raise
        tries += 1
        pause(wait_s)


def _trouble(answer: Answer) -> str | None:
    """The known words of trouble in a complaint."""
    if answer.code == 0:
        return None
    if answer.code == NOT_FOUND:
        return "not found"
    said = answer.err.lower()
    return next((words for words in (*_PASSING, *_LASTING_TROUBLE) if words in said), None)


def _text(raw: bytes) -> str:
    """Names of jobs may hold any bytes."""
    return raw.decode("utf-8", "surrogateescape")
