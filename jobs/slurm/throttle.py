"""array_parallel: how many elements of a sweep run at once, over all of its arrays.

Slurm's own throttle (sbatch --array=0-99%4) is that of one array, so the number is split over the
arrays that have not ended. None gets 0, which would lift Slurm's limit: what has no share waits.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from jobs.config.site import NodeLayout
from jobs.slurm.client.run import SlurmError, asker, run
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import Array, RunNote, listed_as, shared, shares, submitted_cells


@dataclass
class Throttle:
    """Keeps the arrays of a sweep to ``most`` elements at once."""

    most: int
    watched: bool  # the sweep looks again; else what is split stays so
    layouts: set[NodeLayout] = field(default_factory=set)  # of arrays that have not ended
    _left: dict[str, int] = field(default_factory=dict)  # elements of arrays that have not ended
    _wanted: dict[str, int] = field(default_factory=dict)  # of arrays that need a share, too
    _limits: dict[str, int] = field(default_factory=dict)  # by Slurm's last answer
    _asked: dict[str, set[str]] = field(default_factory=dict)  # what waited then, by array
    _spare: int = 0

    def look(
        self, sweep: Path, queue: Mapping[str, JobState], notes: Sequence[RunNote], alive: Set[str]
    ) -> None:
        """``notes``: of the sweep, read before the queue. ``alive``: ids of submitted cells that
        have not ended, also those whose jobs the queue lacks."""
        noted = [(note, array) for note in notes if note.kind == "cells" for array in note.arrays]
        layouts = {array.key: array.shape for _, array in noted}
        jobs = {job: listed_as(job, queue) for job in submitted_cells(sweep, notes).values()}
        listed = [state for state in jobs.values() if state and not state.ended]
        running = Counter(state.array for state in listed if not state.waits)
        left = Counter(state.array for state in listed)
        for job, state in jobs.items():
            left[job.job.partition("_")[0]] += job.cell in alive and not state
        for note, array in noted:
            left[array.key] += len(array.cells) * (array.job_id is None and note.is_recent)
        self._left = {array: left[array] for array in layouts if left[array]}  # oldest first
        self._wanted = {}
        self.layouts = {layouts[array] for array in self._left}
        # a plain job has no throttle, and needs none
        waiting = defaultdict[str, set[str]](set)
        for state in listed:
            if state.waits and state.job != state.array:
                waiting[state.array].add(state.job)
        self._limits = {array: most for array, most in self._limits.items() if array in waiting}
        # of a requeued element Slurm may show none: asked again as soon as others wait
        self._asked = {a: jobs for a, jobs in self._asked.items() if waiting.get(a) == jobs}
        due = waiting.keys() - self._limits.keys() - self._asked.keys()
        with suppress(SlurmError):  # the next look asks again
            self._limits |= _limits_of(due)
            self._asked |= {array: waiting[array] for array in due}
        # more may run than a throttle that was lowered allows
        claims = {
            array: min(left, max(self._limits.get(array, left), running[array]))
            for array, left in self._left.items()
        }
        self._spare = self.most - sum(claims.values())

    def admitted(self, arrays: Sequence[Array]) -> list[Array]:
        """Those of the arrays that may be submitted now, with their shares.

        While nothing is left, others of the same layout wait for what is in the queue. For another
        layout the arrays there give up a part of theirs, which becomes free as elements end.
        """
        if self.watched and self._spare > 0:
            new = arrays[: self._spare]
            return shared(new, shares(self._spare, {one.key: len(one.cells) for one in new}))
        new = [array for array in arrays if not self.watched or array.shape not in self.layouts]
        new = new[: max(0, self.most - len(self._left))]
        self._wanted = {array.key: len(array.cells) for array in new}
        return [] if self.watched else shared(new, shares(self.most, self._left | self._wanted))

    def sent(self, array: Array) -> None:
        """It may be in the queue from now on."""
        self._left[array.key] = len(array.cells)
        self._spare -= array.parallel

    def balance(self) -> None:
        """Lower the throttles of arrays with more than their share, and raise those of others by
        what that, or the end of arrays, has left."""
        split = shares(self.most, self._left | self._wanted)
        for array in self._left:
            limit = self._limits.get(array, split[array])
            change = min(split[array] - limit, max(0, self._spare))
            self._spare -= max(0, change)
            if change:
                # it exits with 1 as soon as an element has ended: the next look asks what holds
                del self._limits[array]
                self._asked.pop(array, None)
                limit += change
                with suppress(SlurmError):
                    run(["scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={limit}"])


def _limits_of(arrays: Collection[str]) -> dict[str, int]:
    """The throttles of arrays of which elements wait, as Slurm has them now."""
    if not arrays:
        return {}
    argv = ["squeue", "--noheader", "--all", "--local", "--states=PENDING", "--format=%F %K"]
    answer = asker(patience_s=0)([*argv, f"--jobs={','.join(arrays)}"])
    return {array: int(limit) for array, limit in re.findall(r"^(\d+) .*%(\d+)$", answer, re.M)}
