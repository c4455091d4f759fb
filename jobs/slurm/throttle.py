"""array_parallel of a site: how many elements of a sweep run at once, over all of its arrays.

Slurm's own throttle (sbatch --array=0-99%4) is that of one array. So the number is split over the
arrays that have not ended, when one is submitted and when others have ended. No array gets 0, which
would lift Slurm's limit: an array without a share is submitted later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jobs.config.site import NodeLayout
from jobs.messages import name_once
from jobs.slurm.client.run import SlurmError, run
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import Array, RunNote, is_anothers, shares, with_shares


@dataclass
class Live:
    """An array that has not ended."""

    shape: NodeLayout
    waiting: int = 0  # elements
    running: int = 0
    limit: int | None = None  # its throttle; None: not known, or nothing waits for it

    @property
    def size(self) -> int:
        return self.waiting + self.running

    @property
    def claim(self) -> int:
        """How many of its elements may run before the next look."""
        return self.size if self.limit is None else min(self.size, max(self.limit, self.running))


@dataclass
class Throttle:
    """Keeps the arrays of a sweep to ``most`` elements at once."""

    most: int | None  # None: each array has a throttle of its own
    watched: bool  # the sweep looks again; else what is split stays so
    _live: dict[str, Live] = field(default_factory=dict)
    _limits: dict[str, int] = field(default_factory=dict)  # by Slurm's last answer; 0: it has none
    _spare: int = 0

    def look(self, queue: Mapping[str, JobState], notes: Sequence[RunNote]) -> None:
        """``notes``: of the sweep, read before the queue."""
        if self.most is None:
            return
        self._live = live_arrays(queue, notes)
        waiting = [array for array, live in self._live.items() if live.waiting and not live.limit]
        if unknown := [array for array in waiting if array not in self._limits]:
            try:
                self._limits |= dict.fromkeys(unknown, 0) | _limits_of(unknown)
            except SlurmError as error:
                name_once(f"array_parallel: the next look asks again ({error})")
        for array in waiting:
            self._live[array].limit = self._limits.get(array) or None
        self._spare = self.most - sum(live.claim for live in self._live.values())

    def admitted(self, arrays: Sequence[Array]) -> list[Array]:
        """Those of the arrays that may be submitted now, with their shares.

        While nothing is left, others of the same layout wait for what is in the queue. For another
        layout the arrays there give up a part of theirs, which becomes free as elements end.
        """
        if self.most is None:
            return list(arrays)
        if self.watched and self._spare > 0:
            new = arrays[: self._spare]
            return with_shares(new, shares(self._spare, [len(array.units) for array in new]))
        shapes = {live.shape for live in self._live.values()}
        new = [array for array in arrays if not self.watched or array.shape not in shapes]
        new = new[: max(0, self.most - len(self._live))]
        sizes = [live.size for live in self._live.values()]
        targets = shares(self.most, [*sizes, *(len(array.units) for array in new)])
        if new:
            for array, target in zip(list(self._live), targets, strict=False):
                self._set(array, min(target, self._limits.get(array, 0)))
        return [] if self.watched else with_shares(new, targets[len(sizes) :])

    def sent(self, array: Array) -> None:
        """It may be in the queue from now on."""
        size = len(array.units)
        self._live[array.units[0][0]] = Live(array.shape, waiting=size, limit=array.parallel)
        self._spare -= array.parallel

    def balance(self) -> None:
        """Give what arrays leave that have ended, or nearly so, to the others."""
        if self.most is None:
            return
        targets = shares(self.most, [live.size for live in self._live.values()])
        for (array, live), target in zip(self._live.items(), targets, strict=True):
            limit = live.limit or target
            more = max(0, min(target - limit, self._spare))
            self._spare -= more
            # an earlier version submitted with a larger one
            self._set(array, target if limit > self.most else limit + more)

    def _set(self, array: str, limit: int) -> None:
        """Slurm's exit code is 1 where an element has ended, so the next look asks for the limit,
        and sets it again if it is another one."""
        if self._limits.get(array) in (None, 0, limit):
            return
        del self._limits[array]
        try:
            run(["scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={limit}"])
        except SlurmError as error:
            name_once(f"array_parallel: the next look tries again ({error})")


def live_arrays(queue: Mapping[str, JobState], notes: Sequence[RunNote]) -> dict[str, Live]:
    """The sweep's arrays of cells by their ids; also those that may still come into the queue."""
    noted = {
        array.job_id or note.run: (note, note.part(index), array)
        for note in notes
        if note.kind == "cells"
        for index, array in enumerate(note.arrays)
    }
    found: dict[str, Live] = {}
    for job in queue.values():
        note, part, array = noted.get(job.array, (None, "", None))
        if note and array and not is_anothers(job, note.run, part):
            only = 1 if len(array.units) == 1 else None  # it is a plain job
            live = found.setdefault(job.array, Live(array.shape, limit=only))
            if job.waits:
                live.waiting += 1
            elif not job.ended:
                live.running += 1
    for name, (note, _, array) in noted.items():
        if name not in found and note.is_recent:
            found[name] = Live(array.shape, len(array.units), limit=array.parallel)
    return {name: live for name, live in found.items() if live.size}


def _limits_of(arrays: Sequence[str]) -> dict[str, int]:
    """The throttles of arrays of which elements wait, as Slurm has them now."""
    argv = ["squeue", "--noheader", "--all", "--local", "--states=PENDING", "--format=%F %K"]
    answer = run([*argv, f"--jobs={','.join(arrays)}"])
    pairs = re.findall(r"^(\d+) .*%(\d+)$", answer.out, re.MULTILINE)
    return {array: int(limit) for array, limit in pairs if array in arrays}
