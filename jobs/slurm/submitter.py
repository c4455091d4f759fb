"""Submit the cells of one run: as many as may wait in the queue, and nothing after a bad preflight
or after make cancel."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from jobs.cell.state import CellState
from jobs.messages import say
from jobs.slurm.arrays import Array, waves
from jobs.slurm.client.nodes import usable_nodes
from jobs.slurm.client.reasons import is_dependency, is_submit_limit, is_unnamed_limit
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.client.site import submit_limit
from jobs.slurm.client.squeue import JobState
from jobs.slurm.preflight import (
    in_queue,
    is_whole,
    largest,
    preflight_task,
    report_of,
    submit_preflight,
)
from jobs.slurm.submissions import SubmissionContext, is_of
from jobs.slurm.submit import failed_nodes, plan_arrays, send
from jobs.slurm.watch.cancel import cancel, last_cancel
from jobs.slurm.watch.endings import SETTLE_WELL_S
from jobs.slurm.watch.unclear import UNCLEAR_S, Unclear
from train.config.run import RunConfig
from train.record.atomic import forget_absent

#: A limit that others share is tried again after this time, or when a job of ours has ended.
FULL_S = 300.0


@dataclass
class Submitter:
    """Submits what is to run, as far as limits allow; the rest when there is room."""

    sending: SubmissionContext
    todo: list[CellState]
    preflight: bool
    unclear: list[Unclear] = field(default_factory=list)
    first: str | None = None  # the preflight job, once there is one
    last: SlurmError | OSError | None = None  # why not all was submitted that there is room for
    _refused: bool = False  # and it never will be
    _ours: bool = False  # the preflight was submitted here, and nothing depends on it yet
    _renewed: bool = False  # it was gone, and another one was made
    _limit: int | None = None  # jobs that the user may have in the queue
    _full: tuple[int, float] | None = None  # jobs of ours when others filled it; until when
    _everywhere: bool = False  # nodes that failed are not excluded any more
    _gone_at: float | None = None  # when the preflight was not in the queue for the first time
    _cancelled: str | None = None  # the last make cancel when this run began

    def __post_init__(self) -> None:
        self._limit = self.sending.site.submit_limit
        self._cancelled = last_cancel(self.sending.folder)

    def more(self, queue: Mapping[str, JobState]) -> list[RunConfig]:
        """``queue``: all jobs of the user. Returns the cells that were submitted.

        Raises:
            SlurmError: sbatch refused, or gave no answer; cells that were submitted before have
                been returned.
            OSError: the sweep's folder cannot be written.
        """
        sent = self._found(queue)
        if self._refused and self.last is not None and not self.unclear and not sent:
            raise self.last
        if self._refused or not self.todo or self._is_cancelled():
            return sent
        alive = sum(not job.ended for job in queue.values())
        if self._room(alive) == 0 or self._is_full(alive):
            return sent
        self.last = None
        try:
            if self.preflight and not self._may(queue):
                return sent
            alive += self.first is not None and self.first not in queue and self._ours
            if self._room(alive) != 0:
                self._send(alive, sent)
        except (SlurmError, OSError) as error:
            self.last, self._refused = error, is_lasting(error)
            self._give_back()
            if not sent and not self.unclear:
                raise
        return sent

    def waits(self) -> bool:
        return bool(self.todo or self.unclear)

    def _found(self, queue: Mapping[str, JobState]) -> list[RunConfig]:
        """Cells whose submission was unclear: found in the queue; others, when they would be there
        by now, are to be submitted again."""
        found: list[RunConfig] = []
        for one in list(self.unclear):
            job = next((j for j in queue.values() if is_of(j, one.run, one.part)), None)
            if job is not None:
                found += [cell.config for cell in one.cells]
                if self._is_cancelled():
                    self._end(job.array)
            elif time.monotonic() > one.until:
                self.todo += one.cells
            else:
                continue
            self.unclear.remove(one)
        return found

    def _is_cancelled(self) -> bool:
        now = last_cancel(self.sending.folder)
        self._cancelled = now if self._cancelled is None else self._cancelled
        if now in (None, self._cancelled):
            return False
        if self.todo:
            say(f"make cancel was run: {len(self.todo)} cells are not submitted")
            self.todo = []
        return True

    def _end(self, job: str) -> None:
        try:
            answer = cancel([job], self.sending.site.slurm_conf, patience_s=5)
            trouble = answer.words if answer.code else None
        except SlurmError as error:
            trouble = str(error)
        if trouble:
            say(f"job {job} may still run ({trouble}): scancel {job} ends it")

    def _room(self, alive: int) -> int | None:
        return None if self._limit is None else max(0, self._limit - alive)

    def _is_full(self, alive: int) -> bool:
        if self._full and (alive < self._full[0] or time.monotonic() > self._full[1]):
            self._full = None
        return self._full is not None

    def _may(self, queue: Mapping[str, JobState]) -> bool:
        """Whether cells may be submitted: one preflight for all of a run, and nothing after a bad
        one."""
        if self.first is None:
            self._submit_first(queue)
            return True
        job = queue.get(self.first)
        if job is not None and not job.ended:
            self._gone_at = None
            return True
        return self._passed(self.first)

    def _submit_first(self, queue: Mapping[str, JobState]) -> None:
        shape = largest(plan_arrays(self.sending, self.todo))
        task = preflight_task(self.sending, shape, datetime.now(UTC))
        if is_whole(self.sending, task):
            self.preflight = False
            return
        self.first = in_queue(self.sending, task, queue)
        if self.first is None:
            self.first, self._ours = submit_preflight(self.sending, task), True
            say(f"preflight: job {self.first} on {shape} goes first; the cells start when it has "
                "passed")  # fmt: skip

    def _passed(self, job: str) -> bool:
        """Its report decides; one that is not seen may be seen later."""
        forget_absent(self.sending.folder)
        report = report_of(self.sending.folder, job)
        if report is not None and report.ok:
            self.preflight = False
            return True
        self._gone_at = self._gone_at or time.monotonic()
        if report is not None or time.monotonic() - self._gone_at > SETTLE_WELL_S:
            why = "left no report" if report is None else "failed"
            say(f"{len(self.todo)} cells are not submitted: the preflight, job {job}, {why}")
            self.todo = []
        return False

    def _send(self, alive: int, sent: list[RunConfig], *, again: bool = True) -> None:
        """Submit what there is room for; ``sent`` gets the cells as soon as they are submitted.

        ``again``: what a refusal tells may be changed once, and the rest submitted so.
        """
        wave = waves(plan_arrays(self.sending, self.todo), self._room(alive))
        first = self.first if self.preflight else None
        avoid = self._avoid()
        before, jobs = len(sent), []
        try:
            for array, job in send(self.sending, wave.now, self.todo, first, avoid):
                sent += [cell.config for cell in self._take(array)]
                jobs.append(job)
                alive += len(array.units)
                self._ours = False
                if self._is_cancelled():  # and make cancel did not see this job
                    self._end(job)
                    return
        except SlurmError as error:
            if error.submission is not None and not error.refused:
                run, part, array = error.submission
                until = time.monotonic() + UNCLEAR_S
                self.unclear.append(Unclear(run, part, self._take(array), until))
            then = self._after(error, alive, avoid) if again else "give up"
            if then == "give up":
                raise
            if then == "later":
                self.last = SlurmError(error.asked, error.came, passing=True)
        else:
            then = "later"
        finally:
            if jobs:
                told = f"{len(jobs)} sbatch calls (jobs {', '.join(jobs)})"
                say(f"submitted {len(sent) - before} cells in {told}")
        if then == "now" and self._room(alive) != 0:
            self._send(alive, sent, again=False)
        elif self.todo and jobs:
            say(f"{len(self.todo)} cells wait for room in the queue (submit_limit {self._limit})")

    def _take(self, array: Array) -> list[CellState]:
        """The cells of an array, out of those that are to be submitted."""
        names = {name for unit in array.units for name in unit.cells}
        taken = [cell for cell in self.todo if cell.config.cell_id() in names]
        self.todo = [cell for cell in self.todo if cell.config.cell_id() not in names]
        return taken

    def _after(
        self, error: SlurmError, alive: int, avoid: Collection[str]
    ) -> Literal["now", "later", "give up"]:
        """When the rest is submitted after a refusal, with what it told."""
        if is_dependency(error.came) and self.first is not None and not self._renewed:
            forget_absent(self.sending.folder)
            report = report_of(self.sending.folder, self.first)
            self.preflight = report is None or not report.ok
            self.first, self._renewed = None, True
            return "later" if self.preflight else "now"
        if is_submit_limit(error.came):
            return self._cut(error, alive)
        if avoid and error.refused and not error.passing:
            say(f"sbatch: {error.came}: trying again without excluding {', '.join(sorted(avoid))}")
            self._everywhere = True
            return "now"
        return "give up"

    def _cut(self, error: SlurmError, alive: int) -> Literal["now", "later", "give up"]:
        """After a refusal for too many jobs: when fewer may be taken."""
        limit = submit_limit(error.came, self.sending.site, self.sending.cluster)
        array = error.submission[2] if error.submission else None
        size = len(array.units) if array else 1
        if limit is None:
            return "give up"
        if alive + size > limit:
            say(f"the cluster allows {limit} of your jobs in the queue (submit_limit): the others "
                "follow when jobs end")  # fmt: skip
            self._limit = limit if self._limit is None else min(limit, self._limit)
            return "now"
        if is_unnamed_limit(error.came) or not alive:
            return "give up"  # it is another limit
        say(f"sbatch: {error.came}: others fill the queue; tried again when there may be room")
        self._full = (alive, time.monotonic() + FULL_S)
        return "later"

    def _avoid(self) -> set[str]:
        """Nodes that failed under these cells, as long as enough others are left."""
        nodes = set() if self._everywhere else failed_nodes(self.todo)
        if not nodes:
            return set()
        wanted = largest(plan_arrays(self.sending, self.todo)).nodes
        left = len(usable_nodes(self.sending.site) - nodes)
        names = ", ".join(sorted(nodes))
        if left < wanted:
            say(f"{names} failed under these cells and is not excluded: sinfo shows {left} other "
                f"nodes that take jobs, {wanted} are needed")  # fmt: skip
            return set()
        say(f"{names} failed under these cells: excluded from this submission")
        return nodes

    def _give_back(self) -> None:
        """A preflight that no job waits for would hold its nodes for nothing."""
        if self.first is not None and self._ours and self._refused and not self.unclear:
            say(f"preflight: job {self.first} is cancelled: no cell waits for it")
            self._end(self.first)
            self.first = None
