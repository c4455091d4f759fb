"""Submit the cells of one run: as many as may wait in the queue, and nothing after a bad preflight
or after make cancel."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from jobs.ledger import Standing
from jobs.options import say
from jobs.slurm.cancel import cancel, last_cancel
from jobs.slurm.commands import SlurmError
from jobs.slurm.gate import in_queue, is_whole, largest, preflight_task, submit_preflight
from jobs.slurm.inventory import SETTLE_WELL_S, report_of
from jobs.slurm.limits import submit_limit, usable_nodes
from jobs.slurm.notes import is_of
from jobs.slurm.queue import JobState
from jobs.slurm.refusals import is_dependency, is_submit_limit
from jobs.slurm.send import Sending, failed_nodes, plan_arrays, send
from jobs.slurm.submit import SBATCH_S
from jobs.slurm.units import Array, waves
from train.config.run import RunConfig
from train.record.atomic import forget_absent

#: sbatch itself tries for two minutes; what it was to submit is in the queue by then, or nowhere.
UNCLEAR_S = 2 * SBATCH_S


@dataclass(frozen=True)
class Unclear:
    """A submission of which it is not known whether Slurm accepted it."""

    run: str
    part: str
    cells: list[Standing]
    at: float  # monotonic


@dataclass
class Submitter:
    """Submits what is to run, as far as limits allow; the rest when there is room."""

    sending: Sending
    todo: list[Standing]
    preflight: bool
    first: str | None = None  # the preflight job, once there is one
    _ours: bool = False  # it was submitted here, and nothing depends on it yet
    _limit: int | None = None  # jobs that the user may have in the queue
    failed: SlurmError | None = None  # after a part was submitted
    _unclear: list[Unclear] = field(default_factory=list)
    _gone_at: float | None = None  # when the preflight was not in the queue for the first time
    _cancelled: str = field(default="")  # the last make cancel when this run began

    def __post_init__(self) -> None:
        self._limit = self.sending.site.submit_limit
        self._cancelled = last_cancel(self.sending.folder)

    def more(self, queue: Mapping[str, JobState]) -> list[RunConfig]:
        """``queue``: all jobs of the user. Returns the cells that were submitted.

        Raises:
            SlurmError: sbatch refused, or gave no answer; cells that were submitted before have
                been returned.
        """
        if self.failed is not None:
            error, self.failed = self.failed, None
            if not error.passing:
                raise error
        sent = self._found(queue)
        if not self.todo or self._is_cancelled():
            return sent
        alive = sum(not job.ended for job in queue.values())
        if self._room(alive) == 0:
            return sent
        try:
            if self.preflight and not self._may(queue):
                return sent
            alive += self.first is not None and self.first not in queue and self._ours
            if self._room(alive) != 0:
                self._send(alive, sent)
        except SlurmError as error:
            self._give_back(error)
            if not sent:
                raise
            say(f"sbatch: {error.came}")
            self.failed = error
        return sent

    def _is_cancelled(self) -> bool:
        if last_cancel(self.sending.folder) == self._cancelled:
            return False
        say(f"make cancel was given: {len(self.todo)} cells are not submitted")
        self.todo = []
        return True

    def _found(self, queue: Mapping[str, JobState]) -> list[RunConfig]:
        """Cells of submissions of which sbatch did not say whether they were accepted: found in the
        queue, or given up and to be submitted again."""
        found: list[RunConfig] = []
        for one in list(self._unclear):
            if any(is_of(job, one.run, one.part) for job in queue.values()):
                found += [cell.config for cell in one.cells]
            elif time.monotonic() - one.at > UNCLEAR_S:
                self.todo += one.cells
            else:
                continue
            self._unclear.remove(one)
        return found

    def _room(self, alive: int) -> int | None:
        return None if self._limit is None else max(0, self._limit - alive)

    def _may(self, queue: Mapping[str, JobState]) -> bool:
        """Whether cells may be submitted: one preflight for all of a run, and nothing after a bad
        one."""
        if self.first is None:
            self._submit_first(queue)
            return True
        job = queue.get(self.first)
        return (job is not None and not job.ended) or self._passed(self.first)

    def _submit_first(self, queue: Mapping[str, JobState]) -> None:
        shape = largest(plan_arrays(self.sending, self.todo))
        task = preflight_task(self.sending, shape, datetime.now(UTC))
        if is_whole(self.sending, task):
            self.preflight = False
            return
        self.first = in_queue(self.sending, task, queue)
        if self.first is None:
            self.first, self._ours = submit_preflight(self.sending, task), True
            say(f"preflight: job {self.first} on {shape} goes first; the cells wait for its good "
                "end")  # fmt: skip

    def _passed(self, job: str) -> bool:
        """Its report decides; one that is not seen may be seen later."""
        forget_absent(self.sending.folder)
        report = report_of(self.sending.folder, job)
        if report is not None and report.ok:
            self.preflight = False
            return True
        self._gone_at = self._gone_at or time.monotonic()
        if report is not None or time.monotonic() - self._gone_at > SETTLE_WELL_S:
            why = "left no report" if report is None else "did not pass"
            say(f"{len(self.todo)} cells are not submitted: the preflight, job {job}, {why}")
            self.todo = []
        return False

    def _send(self, alive: int, sent: list[RunConfig], *, again: bool = True) -> None:
        """Submit what there is room for; ``sent`` gets the cells as soon as they are submitted.

        ``again``: what a refusal tells may be changed once, and the rest submitted so.
        """
        wave = waves(plan_arrays(self.sending, self.todo), self._room(alive))
        first = self.first if self.preflight else None
        avoid = self._avoid() if again else set()
        jobs: list[str] = []
        count = 0
        try:
            for array, job in send(self.sending, wave.now, self.todo, first, avoid):
                cells = self._take(array)
                sent += [cell.config for cell in cells]
                jobs.append(job)
                count += len(cells)
                alive += len(array.units)
                self._ours = False
                if self._is_cancelled():  # after the jobs that it saw
                    cancel([job], self.sending.site.slurm_conf, patience_s=5)
                    break
        except SlurmError as error:
            if error.unclear is not None:
                run, part, array = error.unclear
                self._unclear.append(Unclear(run, part, self._take(array), time.monotonic()))
            if not again or not self._changes(error, alive, avoid):
                raise
            if self._room(alive) != 0:
                self._send(alive, sent, again=False)
        finally:
            if jobs:
                told = ", ".join(jobs)
                say(f"submitted {count} cells in {len(jobs)} sbatch calls (jobs {told})")
        if self.todo and jobs:
            say(f"{len(self.todo)} cells wait for room in the queue (submit_limit {self._limit})")

    def _take(self, array: Array) -> list[Standing]:
        """The cells of an array, out of those that are to be submitted."""
        names = {name for unit in array.units for name in unit.cells}
        taken = [cell for cell in self.todo if cell.config.cell_id() in names]
        self.todo = [cell for cell in self.todo if cell.config.cell_id() not in names]
        return taken

    def _changes(self, error: SlurmError, alive: int, avoid: Collection[str]) -> bool:
        """Whether the rest is to be submitted after a refusal, now or later, with what it told."""
        if is_dependency(error.came) and self.first is not None:
            report = report_of(self.sending.folder, self.first)
            self.preflight = report is None or not report.ok
            self.first = None
            return not self.preflight  # else the next look makes a new one
        if is_submit_limit(error.came):
            return self._cut(error, alive)
        if avoid and error.refused:
            say(f"sbatch: {error.came}: once more with {', '.join(sorted(avoid))}")
            return True
        return False

    def _cut(self, error: SlurmError, alive: int) -> bool:
        """After a refusal for too many jobs: whether fewer at once, or later, may be taken."""
        limit = submit_limit(error.came, self.sending.site, self.sending.cluster)
        if limit is None:
            return False
        if self._limit is not None and limit >= self._limit:
            self._limit = max(1, min(self._limit, alive))  # others share it
            return alive > 0
        say(f"at most {limit} jobs of yours may be in the queue (submit_limit): the rest follows")
        self._limit = limit
        return True

    def _avoid(self) -> set[str]:
        """Nodes that failed under these cells, as long as enough others are left."""
        nodes = failed_nodes(self.todo)
        if not nodes:
            return nodes
        wanted = largest(plan_arrays(self.sending, self.todo)).nodes
        left = usable_nodes(self.sending.site) - nodes
        if len(left) < wanted:
            say(f"{', '.join(sorted(nodes))} failed under these cells, and is asked for again: "
                f"{len(left)} other nodes are in use, {wanted} are needed")  # fmt: skip
            return set()
        say(f"{', '.join(sorted(nodes))} failed under these cells: not asked for this time")
        return nodes

    def _give_back(self, error: SlurmError) -> None:
        """A preflight that no job waits for would hold its nodes for nothing."""
        if self.first is None or not self._ours or error.passing:
            return
        try:
            cancel([self.first], self.sending.site.slurm_conf, patience_s=5)
            say(f"preflight: job {self.first} was cancelled: no cell waits for it")
            self.first = None
        except SlurmError:
            say(f"preflight: job {self.first} may still run: scancel {self.first} ends it")

    def waits(self) -> bool:
        return bool(self.todo or self._unclear or self.failed)
