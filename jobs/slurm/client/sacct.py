"""How jobs stand that the list of jobs does not explain: asked of Slurm by their ids, of the
controller (squeue) and of the accounts (sacct). No answer of the controller is a SlurmError.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from jobs.slurm.client.run import SCONTROL, SlurmError, asker, read_config, run
from jobs.slurm.client.squeue import (
    ENDED,
    FIELD,
    NOTHING,
    JobState,
    exit_codes,
    query,
    read_exit,
)

#: A job that Slurm forgot is asked about again after this time, then after twice as long ...
AGAIN_S, AGAIN_MOST_S = 60.0, 600.0
_COLUMNS = ("JobID", "State", "ExitCode", "Reason", "NodeList")


@dataclass
class _Remembered:
    answer: JobState | None = None  # None: Slurm does not know the job
    pause_s: float = AGAIN_S  # after the next question
    next_at: float = 0.0  # it is asked about again then


@dataclass
class History:
    """Asks about jobs by their ids, and remembers what need not be asked again soon."""

    clock: Callable[[], float] = time.monotonic
    _cluster: str | None = None
    _remembered: dict[str, _Remembered] = field(default_factory=dict)

    def cluster(self) -> str | None:
        """Name of the cluster that answers here; None where it does not say.

        Raises:
            SlurmError: no answer, or a refusal: the shell of another cluster, say.
        """
        if self._cluster is None:
            config = asker(patience_s=0)(SCONTROL)
            self._cluster = read_config(config).get("ClusterName")
        return self._cluster

    def endings(self, over: Collection[str], gone: Collection[str] = ()) -> dict[str, JobState]:
        """What Slurm says of these jobs; those that it does not know are not in the answer. Any of
        them may be alive: a list is of a moment, and a job that ended may be requeued.

        ``over``: the list says that they ended. ``gone``: the list lacks them; these are asked
        about again only after a while.
        """
        now = self.clock()
        remembered = {job: self._remembered.setdefault(job, _Remembered()) for job in gone}
        due = {job for job, one in remembered.items() if now >= one.next_at}
        answers = self._ask({*over, *due})
        for job in due:
            one = remembered[job]
            one.answer, one.next_at = answers.get(job), now + one.pause_s
            one.pause_s = min(2 * one.pause_s, AGAIN_MOST_S)
        return {job: one.answer for job, one in remembered.items() if one.answer} | answers

    def _ask(self, jobs: set[str]) -> dict[str, JobState]:
        """The controller first: what it knows to be alive is alive. How a job ended the accounts
        know best, because the kernel often ends a step for its memory; but they may be late, or not
        kept at all."""
        if not jobs:
            return {}
        listed = query(arrays=_arrays(jobs))
        answers = {job: state for job, state in listed.items() if job in jobs}
        unsure = {job for job in jobs if job not in answers or answers[job].ended}
        accounts: dict[str, JobState] = {}
        if unsure:
            argv = ["sacct", "--noheader", "--parsable2", f"--delimiter={FIELD}"]
            argv += [f"--format={','.join(_COLUMNS)}", f"--jobs={','.join(_arrays(unsure))}"]
            with suppress(SlurmError):
                answer = run(argv)
                accounts = parse_sacct(answer.out) if answer.code == 0 else {}
        for job in accounts.keys() & unsure:
            known, account = answers.get(job), accounts[job]
            if known is None:
                answers[job] = account
            elif account.ended:
                answers[job] = replace(account, comment=known.comment, command=known.command)
        failed = {j for j, a in answers.items() if a.state == "FAILED" and a.source == "squeue"}
        codes = exit_codes(_arrays(failed)) if failed else {}
        for job in codes.keys() & failed:
            answers[job] = replace(answers[job], code=codes[job][0], signal=codes[job][1])
        return answers


def _arrays(jobs: Iterable[str]) -> list[str]:
    arrays = {job.partition("_")[0] for job in jobs}
    return sorted(arrays, key=lambda array: (len(array), array))


def parse_sacct(text: str) -> dict[str, JobState]:
    """Jobs in sacct's answer by their ids. One that ended badly is OUT_OF_MEMORY where one of its
    steps was. Further columns do not matter.

    sacct prints the elements that never started as one job: 16_[2-4,9%2].
    """
    found: dict[str, JobState] = {}
    for line in text.splitlines():
        if re.match(rf"\d[^{FIELD}]*{FIELD}[A-Z]", line) is None:
            continue  # a site's greeting
        fields = [*line.split(FIELD), *[""] * len(_COLUMNS)][: len(_COLUMNS)]
        name, state, exit_text, *rest = fields
        word = state.partition(" ")[0]  # "CANCELLED by 1000"
        job, _, step = name.partition(".")
        if not step:
            code, signal = read_exit(exit_text)
            reason, nodes = ("" if item in NOTHING else item for item in rest)
            for element in _elements(job):
                found[element] = JobState(
                    element, word, reason, nodes=nodes, code=code, signal=signal, source="sacct"
                )
        elif word == "OUT_OF_MEMORY" and job in found and found[job].state in ENDED - {"COMPLETED"}:
            found[job] = replace(found[job], state=word)
    return found


def _elements(name: str) -> list[str]:
    """16_[2-4,9%2] is 16_2, 16_3, 16_4, 16_9; any other id is itself."""
    found = re.fullmatch(r"(\d+)_\[([\d,:-]+)(?:%\d+)?\]", name)
    if found is None:
        return [name]
    elements: list[int] = []
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", found[2]):
        elements += range(int(first), int(last or first) + 1, int(step or 1))
    return [f"{found[1]}_{element}" for element in elements]
