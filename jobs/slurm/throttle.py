"""array_parallel: how many elements of a sweep run at once, over all of its arrays.

Slurm's own throttle (sbatch --array=0-99%4) is that of one array, so the number is split over the
arrays that have not ended. None gets 0, which would lift Slurm's limit: what has no share waits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from jobs.config.site import NodeLayout
from jobs.slurm.client.run import SlurmError, run
from jobs.slurm.client.squeue import JobState
from jobs.slurm.submissions import Array, RunNote, shared, shares


@dataclass
class Throttle:
    """Keeps the arrays of a sweep to ``most`` elements at once."""

    most: int | None  # None: each array has a throttle of its own
    watched: bool  # the sweep looks again; else what is split stays so
    _left: dict[str, int] = field(default_factory=dict)  # elements of arrays that have not ended
    _wanted: dict[str, int] = field(default_factory=dict)  # of arrays that need a share, too
    _layouts: set[NodeLayout] = field(default_factory=set)  # of arrays that have not ended
    _limits: dict[str, int] = field(default_factory=dict)  # by Slurm's last answer; 0: none
    _spare: int = 0

    def look(self, queue: Mapping[str, JobState], notes: Sequence[RunNote]) -> None:
        """``notes``: of the sweep, read before the queue."""
        if self.most is None:
            return
        arrays = [array for note in notes if note.kind == "cells" for array in note.arrays]
        layouts = {array.key: array.shape for array in arrays}
        jobs = [job for job in queue.values() if job.array in layouts and not job.ended]
        running = Counter(job.array for job in jobs if not job.waits)
        left = Counter(job.array for job in jobs)
        self._left = {array: left[array] for array in layouts if array in left}  # oldest first
        self._wanted = {}
        self._layouts = {layouts[array] for array in self._left}
        # a plain job has no throttle, and needs none
        waiting = {job.array for job in jobs if job.waits and job.job != job.array}
        with suppress(SlurmError):  # the next look asks again
            self._limits |= _limits_of(waiting - self._limits.keys())
        # more may run than a throttle that was lowered allows
        claims = {
            array: min(left, max(self._limits.get(array) or left, running[array]))
            for array, left in self._left.items()
        }
        self._spare = self.most - sum(claims.values())

    def admitted(self, arrays: Sequence[Array]) -> list[Array]:
        """Those of the arrays that may be submitted now, with their shares.

        While nothing is left, others of the same layout wait for what is in the queue. For another
        layout the arrays there give up a part of theirs, which becomes free as elements end.
        """
        if self.most is None:
            return list(arrays)
        if self.watched and self._spare > 0:
            new = arrays[: self._spare]
            return shared(new, shares(self._spare, {one.key: len(one.units) for one in new}))
        new = [array for array in arrays if not self.watched or array.shape not in self._layouts]
        new = new[: max(0, self.most - len(self._left))]
        self._wanted = {array.key: len(array.units) for array in new}
        return [] if self.watched else shared(new, shares(self.most, self._left | self._wanted))

    def sent(self, array: Array) -> None:
        """It may be in the queue from now on."""
        self._left[array.key] = len(array.units)
        self._spare -= array.parallel

    def balance(self) -> None:
        """Lower the throttles of arrays with more than their share, and raise those of others by
        what that, or the end of arrays, has left."""
        split = shares(self.most or 0, self._left | self._wanted)
        for array in self._left:
            limit = self._limits.get(array) or split[array]
            change = min(split[array] - limit, max(0, self._spare))
            self._spare -= max(0, change)
            if change:
                # it exits with 1 as soon as an element has ended: the next look asks what holds
                del self._limits[array]
                limit += change
                with suppress(SlurmError):
                    run(["scontrol", "update", f"JobId={array}", f"ArrayTaskThrottle={limit}"])


def _limits_of(arrays: Collection[str]) -> dict[str, int]:
    """The throttles of arrays of which elements wait, as Slurm has them now."""
    if not arrays:
        return {}
    argv = ["squeue", "--noheader", "--all", "--local", "--states=PENDING", "--format=%F %K"]
    pairs = re.findall(r"^(\d+) .*%(\d+)$", run([*argv, f"--jobs={','.join(arrays)}"]).out, re.M)
    return dict.fromkeys(arrays, 0) | {array: int(limit) for array, limit in pairs}
