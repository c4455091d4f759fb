"""How jobs ended that left no record, as far as Slurm still knows."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from jobs.slurm.commands import Answer, SlurmError, ask
from jobs.slurm.queue import ENDED, FIELD
from train.record.run import Status

NO_ACCOUNTING = "accounting storage is disabled"
#: Arrays that scontrol is asked about one by one; of more, all jobs that it knows in one call.
MAX_SINGLE = 8
_SACCT = ("JobID", "State", "ExitCode", "Reason", "NodeList")


@dataclass(frozen=True)
class Ending:
    """What Slurm says about a job that is over."""

    job: str
    state: str  # Slurm's own word
    code: int | None
    signal: int | None
    reason: str
    nodes: str
    out_of_memory: bool
    source: Literal["sacct", "scontrol"]


@dataclass
class History:
    """Asks about ended jobs, and remembers that a site keeps no accounts."""

    slurm_conf: str | None = None
    patience_s: float = 0
    accounting: bool = True

    def endings(self, jobs: Iterable[str]) -> dict[str, Ending]:
        """For each job that Slurm says is over, how: one sacct for all; scontrol for those that
        sacct does not know or still takes for running, since accounts come late.

        Jobs that Slurm has forgotten, and those that still wait or run, are not in the answer.

        Raises:
            SlurmError: the controller gives no answer.
        """
        missing = set(jobs)
        found: dict[str, Ending] = {}
        for source in (self._sacct, self._scontrol):
            if missing:
                arrays = {job.partition("_")[0] for job in missing}
                told = source(sorted(arrays, key=lambda array: (len(array), array)))
                over = {e.job: e for e in told if e.state in ENDED and e.job in missing}
                found |= over
                missing -= set(over)
        return found

    def _sacct(self, arrays: list[str]) -> list[Ending]:
        """Nothing where there is no sacct, or no database behind it: the controller knows, too."""
        if not self.accounting:
            return []
        try:
            answer = ask(sacct_argv(arrays), patience_s=0, slurm_conf=self.slurm_conf)
        except SlurmError as error:
            self.accounting = error.passing
            return []
        self.accounting = not _is_off(answer)
        return parse_sacct(answer.out)

    def _scontrol(self, arrays: list[str]) -> list[Ending]:
        """A code other than 0: it does not know the job any more."""
        some: list[str | None] = [*arrays] if len(arrays) <= MAX_SINGLE else [None]
        found: list[Ending] = []
        for array in some:
            argv = ["scontrol", "--oneliner", "show", "job", *([array] if array else [])]
            answer = ask(argv, patience_s=self.patience_s, slurm_conf=self.slurm_conf)
            found += parse_scontrol(answer.out)
        return found


def sacct_argv(arrays: Iterable[str]) -> list[str]:
    """Steps are listed too: the kernel often ends a step for its memory, not the job."""
    return ["sacct", "--noheader", "--parsable2", f"--delimiter={FIELD}",
            f"--format={','.join(_SACCT)}", f"--jobs={','.join(arrays)}"]  # fmt: skip


def parse_sacct(text: str) -> list[Ending]:
    """Jobs in sacct's answer; a job counts as out of memory when one of its steps was."""
    found: dict[str, Ending] = {}
    for line in text.splitlines():
        fields = line.split(FIELD)
        if len(fields) != len(_SACCT):
            continue
        step, state, code, reason, nodes = fields
        name, _, part = step.partition(".")
        word = state.split()[0] if state.split() else ""  # "CANCELLED by 1000"
        memory = word == "OUT_OF_MEMORY"
        if part:
            if memory and name in found:
                found[name] = replace(found[name], out_of_memory=True)
            continue
        exit_code, number = _exit(code)
        reason = "" if reason == "None" else reason
        for job in _elements(name):
            found[job] = Ending(
                job, word, exit_code, number, reason, _nodes(nodes), memory, "sacct"
            )
    return list(found.values())


def parse_scontrol(text: str) -> list[Ending]:
    """Jobs in the answer of ``scontrol --oneliner show job``."""
    found = []
    for line in text.splitlines():
        head, _, rest = line.partition(" JobName=")
        # a name may hold anything, so that the rest is read behind it
        told = rest.partition(" UserId=")[2]
        number = re.match(r"JobId=(\d+)(?: ArrayJobId=(\d+) ArrayTaskId=(\S+))?", head)
        state = _value(told, "JobState")
        if number is None or not state:
            continue
        code, signal_number = _exit(_value(told, "ExitCode"))
        reason = _value(told, "Reason")
        memory = state == "OUT_OF_MEMORY" or reason == "OutOfMemory"
        reason = "" if reason == "None" else reason
        nodes = _nodes(_value(told, "NodeList"))
        for job in _elements(f"{number[2]}_[{number[3]}]" if number[2] else number[1]):
            found.append(Ending(job, state, code, signal_number, reason, nodes, memory, "scontrol"))
    return found


def status_of(ending: Ending) -> tuple[Status, str]:
    """The status of a record for a start that left none, and a sentence about its end.

    For jobs whose supervisor could not say it itself, so that a good end is none here.
    """
    status, text = _told(ending)
    return status, text + (f" (on {ending.nodes})" if ending.nodes else "")


_ENDS: dict[str, tuple[Status, str]] = {
    "CANCELLED": ("cancelled", "it was cancelled, by scancel or by the site"),
    "TIMEOUT": ("timeout", "Slurm ended it at its time limit"),
    "DEADLINE": ("timeout", "Slurm ended it at its deadline"),
    "PREEMPTED": ("preempted", "Slurm ended it for a job of higher priority"),
    "NODE_FAIL": ("lost", "a node that it ran on failed"),
    "BOOT_FAIL": ("lost", "a node that it was to run on did not come up"),
    "COMPLETED": ("lost", "Slurm says that it completed, yet it left no record"),
}


def _told(ending: Ending) -> tuple[Status, str]:
    if ending.out_of_memory:
        return "failed", "it used more memory than it had asked for, and was ended"
    if ending.state in _ENDS:
        return _ENDS[ending.state]
    if ending.state == "FAILED" and ending.signal:
        return "lost", f"its supervisor was ended by {_signal_name(ending.signal)}"
    if ending.state == "FAILED" and ending.code is not None:
        return "failed", f"its batch script ended with exit code {ending.code}{_because(ending)}"
    return "lost", f"Slurm says {ending.state}{_because(ending)}"


def _because(ending: Ending) -> str:
    told = ending.reason not in ("", "NonZeroExitCode")
    return f" ({ending.reason})" if told else ""


def _is_off(answer: Answer) -> bool:
    return answer.code != 0 and NO_ACCOUNTING in answer.err


def _exit(text: str) -> tuple[int | None, int | None]:
    """Slurm's CODE:SIGNAL."""
    found = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if found is None:
        return None, None
    return int(found[1]), int(found[2]) or None


def _value(line: str, key: str) -> str:
    """The first value of a key; it ends where the next key begins, for it may hold blanks."""
    found = re.search(rf" {key}=(.*?)(?= [A-Z][\w/:&]*=|\s*$)", line)
    return found[1].strip() if found else ""


def _elements(name: str) -> list[str]:
    """Elements that never started are one job to Slurm: 16_[2-4,9%2] is 16_2, 16_3, 16_4, 16_9."""
    found = re.fullmatch(r"(\d+)_\[([\d,:-]+)(?:%\d+)?\]", name)
    if found is None:
        return [name]
    elements: list[int] = []
    for part in found[2].split(","):
        span = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part)
        if span:
            last = int(span[2] or span[1])
            elements += range(int(span[1]), last + 1, max(1, int(span[3] or 1)))
    return [f"{found[1]}_{element}" for element in elements]


def _nodes(text: str) -> str:
    return "" if text in ("(null)", "None assigned", "None") else text


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
