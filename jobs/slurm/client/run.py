"""Run one of Slurm's own programs: a list of words, a clean environment, a time limit, and an error
of its own where Slurm gives no answer.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from train.errors import ConfigError, start_error
from train.program.environment import environment_of

#: Slurm's texts for errors (slurm_strerror) that pass: the controller is down, busy or restarting,
#: and has not got, or has turned away, what was asked.
_AWAY = re.compile(
    r"Unable to contact slurm controller \(connect failure\)|Connection refused"
    "|Slurm backup controller in standby mode|Unexpected message received"
    "|Controller is in standby mode, try a different controller"
    "|Rate limit exceeded, please retry (?:momentarily|later)|Resource temporarily unavailable"
    "|Job can not be altered now, try again later|Transport endpoint is not connected"
)
#: ... and that leave it open whether the controller got it, and does it all the same.
_UNANSWERED = re.compile(
    r"Unable to contact slurm controller \((?:send|receive|shutdown) failure\)"
    "|Message (?:send|receive) failure|Communication shutdown failure"
    "|Socket timed out on send/recv operation|Zero Bytes were transmitted or received"
    "|Connection reset by peer|Connection timed out(?: establishing| writing| reading)?"
    "|Kernel reported delayed socket error after successful write.*"
)
#: A line in which one of Slurm's programs says why it failed, around such a text, whatever stands
#: before it. All other lines are for printing: of a wrapper or tracer, of the loader (LD_PRELOAD),
#: and of a site's job_submit plugin, which sbatch prints with its own name.
_FAILED = re.compile(
    r"(?:.*?\b(?:Batch job submission failed|allocation failure"
    r"|s(?:acct|acctmgr|cancel|control|info|queue)[\w.-]*: (?:error|fatal)(?:: .+)?"
    r"|s[\w.-]+: error: \w+: failed to fetch remote configs"
    r"|slurm_\w+(?: error)?)|[\d_]+): ([^:]+)"
    r"|([^:]+) for job [\d_]+"
)
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
#: No process can be started now, where the node limits those of a user: later it can.
_NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
#: Of timeout(1), which a site may put before Slurm's programs; none of these ends with it.
_TIMED_OUT = 124
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)

SCONTROL = ("scontrol", "show", "config")
#: Runs a program that asks Slurm, and returns its output; raises SlurmError.
Ask = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a program; a refusal, with a code other than 0, is an answer, too."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """All that it printed, on either stream, in one line."""
        return " ".join(f"{self.err} {self.out}".split()) or f"exit code {self.code}"

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in _COLOURS.sub("", f"{self.err}\n{self.out}").splitlines()]

    @property
    def causes(self) -> list[str]:
        """Slurm's texts for why it failed; sbatch ends with one."""
        found = map(_FAILED.fullmatch, self.lines)
        return [one[1] or one[2] for one in found if one]


class SlurmError(RuntimeError):
    """Slurm gave no answer. The text names the command and the reason.

    ``passing``: the same command may be answered a moment later. ``printed``: all that the program
    printed, if ``came`` is only the part that decides.
    """

    def __init__(self, asked: str, came: str, *, passing: bool, printed: str = "") -> None:
        self.asked = asked
        self.came = came
        self.printed = printed or came
        super().__init__(f"{asked}: {self.printed}")
        self.passing = passing
        self.refused = False  # of sbatch: the request was certainly not granted


def is_lasting(error: SlurmError | OSError) -> bool:
    """Whether the same would be refused again and again."""
    if isinstance(error, SlurmError):
        return not error.passing
    return isinstance(error, PermissionError) or error.errno == errno.EROFS


def is_away(cause: str) -> bool:
    """Whether the controller is down, busy or restarting, by Slurm's text for an error."""
    return _AWAY.fullmatch(cause) is not None or is_unanswered(cause)


def is_unanswered(cause: str) -> bool:
    """... and may do what was asked all the same."""
    return _UNANSWERED.fullmatch(cause) is not None


def answer_of(argv: Sequence[str], *, timeout_s: float = 30) -> Answer:
    """Run a program once and return whatever it answers. It runs in a session of its own, so that a
    terminal's Ctrl-C reaches only us.

    Raises:
        SlurmError: no such program, no end within ``timeout_s`` seconds, or its end by a signal.
        ConfigError: it would ask several clusters.
    """
    environment = environment_of("slurm", os.environ)
    if argv[0] == "squeue":  # its local times lack a zone; sbatch would export this into jobs
        environment["SLURM_TIME_FORMAT"] = "%s"
    _check_one(environment.get("SLURM_CLUSTERS", ""))
    try:
        done = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="surrogateescape",  # names of jobs may hold any bytes
            env=environment,
            start_new_session=True,
        )
        try:
            out, err = done.communicate(timeout=timeout_s)
        except BaseException:
            # not so a wrapper that became root by sudo, nor one that hangs in a file system
            with suppress(OSError, subprocess.TimeoutExpired):
                os.killpg(done.pid, signal.SIGKILL)  # with all that it started
                done.wait(timeout=1)
            for pipe in filter(None, (done.stdout, done.stderr)):
                pipe.close()
            raise
    except subprocess.TimeoutExpired as error:
        reason = f"no answer within {timeout_s:g} s"
        raise SlurmError(shlex.join(argv), reason, passing=True) from error
    except OSError as error:
        cause = start_error(error, argv[0], environment)
        reason = f"cannot be started here: {cause.strerror}"
        raise SlurmError(shlex.join(argv), reason, passing=error.errno in _NO_ROOM) from error
    # the shell of a site's wrapper adds 128 to the signal's number; scancel's own exit codes are
    # larger, as a rule (210)
    number = -done.returncode if done.returncode < 0 else done.returncode - 128
    if 0 < number < signal.SIGRTMIN:
        killed = signal.strsignal(number) or f"signal {number}"
        reason = f"a signal ended it before it answered ({killed})"
    elif done.returncode == _TIMED_OUT:
        reason = f"exit code {_TIMED_OUT}: a time limit ended it before it answered"
    else:
        return Answer(done.returncode, out, err)
    raise SlurmError(shlex.join(argv), reason, passing=True)


def run(argv: Sequence[str], *, patience_s: float = 0, timeout_s: float = 30) -> Answer:
    """Run a program that only asks, or that may be run twice; again while the controller is away,
    for ``patience_s`` seconds (the last try may end later).

    Never for sbatch: one that timed out may have submitted all the same.

    Raises:
        SlurmError: no answer, or the controller is away.
    """
    began = time.monotonic()
    pauses = iter(_PAUSES_S)
    while True:
        try:
            answer = answer_of(argv, timeout_s=timeout_s)
            # scontrol show topology ends with 0 then, and prints nothing (22.05)
            if (answer.code == 0 and answer.out.strip()) or not any(map(is_away, answer.causes)):
                return answer
            raise SlurmError(shlex.join(argv), answer.words, passing=True)
        except SlurmError as error:
            wait_s = next(pauses, _PAUSES_S[-1])
            if not error.passing or time.monotonic() - began + wait_s > patience_s:
                raise
        time.sleep(wait_s)


def asker(*, patience_s: float = 60, timeout_s: float = 30) -> Ask:
    """A function that asks Slurm one question; there, a refusal counts as no answer."""

    def ask(argv: Sequence[str]) -> str:
        answer = run(argv, patience_s=patience_s, timeout_s=timeout_s)
        if answer.code != 0:
            raise SlurmError(shlex.join(argv), answer.words, passing=False)
        # srun of older Slurms lists what it can launch with among its messages
        return f"{answer.out}\n{answer.err}" if argv[0] == "srun" else answer.out

    return ask


def ask_cluster(clusters: str | None, conf: str | None) -> None:
    """From now on, all of Slurm's programs ask this cluster; None: as this shell does.

    ``clusters``: '': the one of the configuration. sbatch alone would obey SBATCH_CLUSTERS, and its
    job be looked for elsewhere. ``conf``: path of the configuration.

    Raises:
        ConfigError: they are several.
    """
    _check_one(clusters or "")
    if conf is not None:
        os.environ["SLURM_CONF"] = conf
    if clusters is not None:
        os.environ.pop("SBATCH_CLUSTERS", None)
        os.environ["SLURM_CLUSTERS"] = clusters
        if not clusters:
            del os.environ["SLURM_CLUSTERS"]


def are_several(clusters: str) -> bool:
    """Whether SLURM_CLUSTERS leaves it to sbatch which cluster it is."""
    return "," in clusters or clusters.strip() == "all"


def _check_one(clusters: str) -> None:
    """Of several, sbatch takes the one that starts a job first, and the others say nothing of it.

    Raises:
        ConfigError: they are several.
    """
    if are_several(clusters):
        raise ConfigError(
            f"SLURM_CLUSTERS={clusters} (or cluster: of the site file) names several clusters, and "
            "a sweep runs on one, where its jobs are found again: export SLURM_CLUSTERS=NAME; with "
            "SITE=NAME, a key cluster: of that site file comes first"
        )


def read_config(text: str) -> dict[str, str]:
    """Settings by name, from ``SCONTROL``'s answer; those without a value are left out."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs if value.strip()}


def max_array_size(config: Mapping[str, str]) -> int:
    """Most elements of one array; Slurm's default where the cluster does not say, 1 where it takes
    no arrays."""
    text = config.get("MaxArraySize", "")
    tasks = re.search(r"\bmax_array_tasks=(\d+)", config.get("SchedulerParameters", ""))
    most = [int(text) if text.isdecimal() else 1001, *([int(tasks[1])] if tasks else [])]
    return max(1, min(most))
