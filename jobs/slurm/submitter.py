"""Submit the cells of one run: as many as may wait in the queue, and nothing after a bad preflight
or after make cancel."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Literal

from jobs.cell.state import CellState
from jobs.messages import say
from jobs.slurm.arrays import Array, fitting
from jobs.slurm.client.nodes import usable_nodes
from jobs.slurm.client.reasons import is_dependency, is_submit_limit, is_unnamed_limit
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.client.site import submit_limit
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.step_failure import failed_node
from jobs.slurm.preflight import Gate
from jobs.slurm.submissions import SubmissionContext, is_of
from jobs.slurm.submit import plan_arrays, send
from jobs.slurm.watch.cancel import cancel, last_cancel
from jobs.slurm.watch.unclear import UNCLEAR_S, Unclear
from train.config.run import RunConfig

#: A limit that others share is tried again after this time, or when a job of ours has ended.
FULL_S = 300.0
#: When the cells that were not submitted are tried again.
Then = Literal["now", "later", "never"]


@dataclass
class Room:
    """How many more jobs of the user the queue takes."""

    limit: int | None  # on jobs in the queue
    alive: int = 0  # jobs in the queue
    _full: tuple[int, float] | None = None  # jobs of ours when others filled it; until when

    def look(self, queue: Mapping[str, JobState]) -> None:
        self.alive = sum(not job.ended for job in queue.values())
        if self._full and (self.alive < self._full[0] or time.monotonic() > self._full[1]):
            self._full = None

    @property
    def left(self) -> int | None:
        """None: no limit is known."""
        if self._full:
            return 0
        return None if self.limit is None else max(0, self.limit - self.alive)

    def learn(self, said: str, size: int, limit: int | None) -> Then:
        """From a refusal of ``size`` jobs for being too many."""
        if limit is not None and self.alive + size > limit:
            say(f"the cluster allows {limit} of your jobs in the queue (submit_limit): the others "
                "follow when jobs end")  # fmt: skip
            self.limit = limit if self.limit is None else min(limit, self.limit)
            return "now"
        if limit is None or is_unnamed_limit(said) or not self.alive:
            return "never"  # it is another limit
        say(f"sbatch: {said}: others fill the queue; tried again when there may be room")
        self._full = (self.alive, time.monotonic() + FULL_S)
        return "later"


@dataclass
class Submitter:
    """Submits what is to run, as far as limits allow; the rest when there is room."""

    context: SubmissionContext
    todo: list[CellState]
    preflight: InitVar[bool]
    unclear: list[Unclear] = field(default_factory=list)
    last: SlurmError | OSError | None = None  # why not all was submitted that there is room for
    gate: Gate = field(init=False)
    room: Room = field(init=False)
    _forgotten: str | None = None  # a preflight that Slurm, said sbatch, no longer knows
    _everywhere: bool = False  # nodes that failed are not excluded any more
    _cancelled: str | None = None  # the last make cancel when this run began

    def __post_init__(self, preflight: bool) -> None:
        self.gate = Gate(self.context, shut=preflight)
        self.room = Room(self.context.site.submit_limit)
        self._cancelled = last_cancel(self.context.folder)

    def more(self, queue: Mapping[str, JobState]) -> list[RunConfig]:
        """``queue``: all jobs of the user. Returns the cells that were submitted.

        Raises:
            SlurmError: sbatch refused, or gave no answer; cells that were submitted before have
                been returned.
            OSError: the sweep's folder cannot be written.
        """
        sent = self._confirmed(queue)
        if self.last is not None and is_lasting(self.last):
            if sent or self.unclear:
                return sent
            raise self.last
        self.room.look(queue)
        if not self.todo or self._is_cancelled() or self.room.left == 0:
            return sent
        self.last, self.gate.fresh = None, False
        try:
            self._submit(queue, sent)
        except (SlurmError, OSError) as error:
            self.last = error
            if sent or self.unclear:
                return sent
            if self.gate.fresh and self.gate.job and is_lasting(error):
                say(f"preflight: job {self.gate.job} is cancelled: no cell waits for it")
                self._end(self.gate.job)
            raise
        return sent

    def waits(self) -> bool:
        return bool(self.todo or self.unclear)

    def _confirmed(self, queue: Mapping[str, JobState]) -> list[RunConfig]:
        """Cells whose submission was unclear: found in the queue; others, when they would be there
        by now, are to be submitted again."""
        confirmed: list[RunConfig] = []
        for unclear in list(self.unclear):
            jobs = (job for job in queue.values() if is_of(job, unclear.run, unclear.part))
            if job := next(jobs, None):
                confirmed += [cell.config for cell in unclear.cells]
                if self._is_cancelled():
                    self._end(job.array)
            elif time.monotonic() > unclear.until:
                self.todo += unclear.cells
            else:
                continue
            self.unclear.remove(unclear)
        return confirmed

    def _is_cancelled(self) -> bool:
        now = last_cancel(self.context.folder)
        self._cancelled = now if self._cancelled is None else self._cancelled
        if now in (None, self._cancelled):
            return False
        self._drop("make cancel was run")
        return True

    def _drop(self, why: str) -> None:
        if self.todo:
            say(f"{len(self.todo)} cells are not submitted: {why}")
        self.todo = []

    def _end(self, job: str) -> None:
        try:
            trouble = cancel([job], self.context.site.slurm_conf, patience_s=5)
        except SlurmError as error:
            trouble = str(error)
        if trouble:
            say(f"job {job} may still run ({trouble}): scancel {job} ends it")

    def _submit(self, queue: Mapping[str, JobState], sent: list[RunConfig]) -> None:
        """Submit what there is room for; ``sent`` gets the cells as soon as they are submitted.
        After a refusal that says what to change, that is changed once, and the rest submitted."""
        for again in (True, False):
            arrays, fresh = plan_arrays(self.context, self.todo), self.gate.fresh
            listed = {job: state for job, state in queue.items() if job != self._forgotten}
            if not self.gate.opens(listed, arrays):
                if self.gate.failure:
                    self._drop(self.gate.failure)
                return
            if self.gate.fresh and not fresh:
                self.room.alive += 1
            if self._send(fitting(arrays, self.room.left), sent, again=again) != "now":
                return

    def _send(self, arrays: Sequence[Array], sent: list[RunConfig], *, again: bool) -> Then:
        """Submit these arrays. Returns when the rest is submitted; ``again``: it may be now."""
        avoid = self._failed_nodes(arrays)
        before, jobs = len(sent), list[str]()
        then: Then = "later"
        try:
            for array, job in send(self.context, arrays, self.todo, self.gate.job, avoid):
                sent += [cell.config for cell in self._remove(array)]
                jobs.append(job)
                self.room.alive += len(array.units)
                if self._is_cancelled():  # and make cancel did not see this job
                    self._end(job)
                    return "never"
        except SlurmError as error:
            if error.submission is not None and not error.refused:
                run, part, array = error.submission
                until = time.monotonic() + UNCLEAR_S
                self.unclear.append(Unclear(run, part, self._remove(array), until))
            then = self._after(error, avoid) if again else "never"
            if then == "never":
                raise
            if then == "later":
                self.last = SlurmError(error.asked, error.came, passing=True)
        finally:
            if jobs:
                calls = f"{len(jobs)} sbatch calls (jobs {', '.join(jobs)})"
                say(f"submitted {len(sent) - before} cells in {calls}")
        if then == "later" and self.todo and jobs:
            limit = self.room.limit
            say(f"{len(self.todo)} cells wait for room in the queue (submit_limit {limit})")
        return then

    def _remove(self, array: Array) -> list[CellState]:
        """Take the cells of an array out of those that are to be submitted."""
        names = {name for unit in array.units for name in unit}
        removed = [cell for cell in self.todo if cell.config.cell_id() in names]
        self.todo = [cell for cell in self.todo if cell.config.cell_id() not in names]
        return removed

    def _after(self, error: SlurmError, avoid: set[str]) -> Then:
        """When the rest is submitted after a refusal, and what is changed for it."""
        if is_dependency(error.came) and self.gate.job and not self._forgotten and self.todo:
            self.gate.job, self._forgotten = None, self.gate.job
            return "now"
        if is_submit_limit(error.came):
            limit = submit_limit(error.came, self.context.site, self.context.cluster)
            size = len(error.submission[2].units) if error.submission else 1
            return self.room.learn(error.came, size, limit)
        if avoid and error.refused and not error.passing:
            say(f"sbatch: {error.came}: trying again without excluding {', '.join(sorted(avoid))}")
            self._everywhere = True
            return "now"
        return "never"

    def _failed_nodes(self, arrays: Sequence[Array]) -> set[str]:
        """Nodes that failed under these cells, as long as enough others are left."""
        failed = () if self._everywhere else {failed_node(cell.folder) for cell in self.todo}
        nodes = {node for node in failed if node}
        if not nodes or not arrays:
            return set()
        wanted = max(array.nodes for array in arrays)
        left = len(usable_nodes(self.context.site) - nodes)
        names = ", ".join(sorted(nodes))
        if left < wanted:
            say(f"{names} failed under these cells and is not excluded: sinfo shows {left} other "
                f"nodes that take jobs, {wanted} are needed")  # fmt: skip
            return set()
        say(f"{names} failed under these cells: excluded from this submission")
        return nodes
