"""How jobs stand that the list of jobs does not explain: asked of Slurm by their ids."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from jobs.slurm.client.run import Answer, SlurmError, ask
from jobs.slurm.client.site import SCONTROL, cluster_name, read_config
from jobs.slurm.client.squeue import ENDED, FIELD, UNKNOWN_ID, JobState, query_ids

NO_ACCOUNTING = "accounting storage is disabled"
#: Arrays that scontrol is asked about one by one; of more, squeue tells first which are known.
MAX_SINGLE = 8
#: A job that Slurm forgot is asked about again after this time, then after twice as long ...
AGAIN_S, AGAIN_MOST_S = 60.0, 600.0
_SACCT = ("JobID", "State", "ExitCode", "Reason", "NodeList")


@dataclass(frozen=True)
class Ending:
    """What Slurm says about one job, asked by its id."""

    job: str
    state: str  # Slurm's own word
    code: int | None
    signal: int | None
    reason: str
    nodes: str
    out_of_memory: bool
    source: Literal["sacct", "scontrol", "squeue"]
    comment: str = ""
    command: str = ""  # the batch script

    @property
    def over(self) -> bool:
        """Whether the job has ended; a word that we do not know counts as alive."""
        return self.state in ENDED

    @classmethod
    def of_queued(cls, job: JobState) -> Ending:
        """What the list of jobs says of one; how it ended stands there in one word only."""
        return cls(
            job.job, job.state, None, None, job.reason, job.nodes, job.state == "OUT_OF_MEMORY",
            "squeue", job.comment, job.command,
        )  # fmt: skip

    def as_queued(self) -> JobState:
        """A job that is alive and stood in no list."""
        return JobState(self.job, self.state, self.reason, None, "", self.nodes, "")


@dataclass(frozen=True)
class _Asked:
    """An answer, and when the same is asked again."""

    answer: Ending | None  # None: Slurm does not know the job
    pause_s: float
    next_at: float


@dataclass
class History:
    """Asks about jobs by their ids, and remembers what need not be asked again soon."""

    slurm_conf: str | None = None
    accounting: bool = True
    clock: Callable[[], float] = time.monotonic
    _cluster: str | None = None
    _asked: dict[str, _Asked] = field(default_factory=dict)

    def cluster(self) -> str | None:
        """Name of the cluster that answers here; None where it does not say.

        Raises:
            SlurmError: no answer.
        """
        if self._cluster is None:
            answer = ask(SCONTROL, patience_s=0, slurm_conf=self.slurm_conf)
            self._cluster = cluster_name(read_config(answer.out))
        return self._cluster

    def endings(self, over: Collection[str], gone: Collection[str] = ()) -> dict[str, Ending]:
        """What Slurm says of these jobs; those that it does not know are not in the answer. Any of
        them may be alive: a list is of a moment, and a job that ended may be requeued.

        ``over``: the list says that they ended. ``gone``: the list lacks them; these are asked
        about again only after a while.

        Raises:
            SlurmError: the controller gives no answer.
        """
        found = self._of_gone(gone) if gone else {}
        if over:
            known = {e.job: e for e in self._known(_arrays(over)) if e.job in over}
            found |= known | self._accounts(
                [job for job in over if not _is_alive(known.get(job))], known
            )
        return found

    def _of_gone(self, gone: Collection[str]) -> dict[str, Ending]:
        now = self.clock()
        due = [job for job in gone if job not in self._asked or now >= self._asked[job].next_at]
        known = {ending.job: ending for ending in self._known(_arrays(due))} if due else {}
        strange = [job for job in due if not _is_alive(known.get(job))]
        accounts = self._accounts(strange, known, alive=True)
        for job in due:
            last, answer = self._asked.get(job), accounts.get(job) or known.get(job)
            longer = last is not None and job not in known
            pause_s = min(2 * last.pause_s, AGAIN_MOST_S) if last and longer else AGAIN_S
            self._asked[job] = _Asked(answer, pause_s, now + pause_s)
        answers = {job: self._asked[job].answer for job in gone}
        return {job: answer for job, answer in answers.items() if answer is not None}

    def _accounts(
        self, jobs: Collection[str], known: Mapping[str, Ending], *, alive: bool = False
    ) -> dict[str, Ending]:
        """How these ended, which the accounts know best: the kernel often ends a step for its
        memory. ``alive``: jobs that the controller does not know may be alive there."""
        told = self._sacct(_arrays(jobs)) if jobs else []
        found = {
            e.job: e for e in told if e.job in jobs and (e.over or (alive and e.job not in known))
        }
        return {
            job: replace(e, comment=known[job].comment, command=known[job].command)
            if job in known else e
            for job, e in found.items()
        }  # fmt: skip

    def _known(self, arrays: list[str]) -> list[Ending]:
        """What the controller says of arrays: of a few with all that it knows of their ends."""
        if len(arrays) <= MAX_SINGLE:
            return self._scontrol(arrays)
        return [Ending.of_queued(job) for job in query_ids(arrays, self.slurm_conf).values()]

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
        found: list[Ending] = []
        for array in arrays:
            # --all: also in partitions that are hidden from the user
            argv = ["scontrol", "--all", "--oneliner", "show", "job", array]
            answer = ask(argv, patience_s=0, slurm_conf=self.slurm_conf)
            if answer.code and UNKNOWN_ID not in answer.err.lower():
                raise SlurmError(" ".join(argv), answer.words, passing=False)
            found += parse_scontrol(answer.out)
        return found


def _is_alive(ending: Ending | None) -> bool:
    return ending is not None and not ending.over


def _arrays(jobs: Iterable[str]) -> list[str]:
    arrays = {job.partition("_")[0] for job in jobs}
    return sorted(arrays, key=lambda array: (len(array), array))


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
            comment, command = (_value(f" {told}", key) for key in ("Comment", "Command"))
            known = (code, signal_number, reason, nodes, memory)
            found.append(Ending(job, state, *known, "scontrol", comment, command))
    return found


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
