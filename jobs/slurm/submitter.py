"""Submit the cells of one run: as many as may wait in the queue, and nothing after a bad preflight
or after make cancel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from jobs.ledger import Standing
from jobs.options import say
from jobs.slurm.cancel import cancel, last_cancel
from jobs.slurm.commands import SlurmError
from jobs.slurm.gate import in_queue, is_whole, largest, preflight_task, submit_preflight
from jobs.slurm.inventory import SETTLE_WELL_S, report_of
from jobs.slurm.limits import submit_limit, usable_nodes
from jobs.slurm.queue import JobState
from jobs.slurm.refusals import is_submit_limit
from jobs.slurm.send import Sending, failed_nodes, plan_arrays, send
from jobs.slurm.units import waves
from train.config.run import RunConfig
from train.record.atomic import forget_absent


@dataclass
class Submitter:
    """Submits what is to run, as far as limits allow; the rest when there is room."""

    sending: Sending
    todo: list[Standing]
    preflight: bool
    first: str | None = None  # the preflight job, once there is one
    _ours: bool = False  # it was submitted here, and nothing depends on it yet
    _limit: int | None = None  # jobs that the user may have in the queue
    _gone_at: float | None = None  # when the preflight was not in the queue for the first time
    _cancelled: str = field(default="")  # the last make cancel when this run began

    def __post_init__(self) -> None:
        self._limit = self.sending.site.submit_limit
        self._cancelled = last_cancel(self.sending.folder)

    def more(self, queue: Mapping[str, JobState]) -> list[RunConfig]:
        """``queue``: all jobs of the user. Returns the cells that were submitted.

        Raises:
            SlurmError: sbatch refused, or gave no answer.
        """
        if not self.todo:
            return []
        if last_cancel(self.sending.folder) != self._cancelled:
            say(f"make cancel was given: {len(self.todo)} cells are not submitted")
            self.todo = []
            return []
        alive = sum(not job.ended for job in queue.values())
        if self._room(alive) == 0:
            return []
        try:
            if self.preflight and not self._may(queue):
                return []
            alive += self.first is not None and self.first not in queue and self._ours
            return self._send(alive) if self._room(alive) != 0 else []
        except SlurmError as error:
            self._give_back(error)
            raise

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
            say(f"{len(self.todo)} cells are not submitted: the preflight, job {job}, did not pass")
            self.todo = []
        return False

    def _send(self, alive: int) -> list[RunConfig]:
        sent: list[RunConfig] = []
        jobs: list[str] = []
        wave = waves(plan_arrays(self.sending, self.todo), self._room(alive))
        first = self.first if self.preflight else None
        avoid = self._avoid()
        try:
            for array, job in send(self.sending, wave.now, self.todo, first, avoid):
                names = {name for unit in array.units for name in unit.cells}
                sent += [cell.config for cell in self.todo if cell.config.cell_id() in names]
                self.todo = [cell for cell in self.todo if cell.config.cell_id() not in names]
                jobs.append(job)
                alive += len(array.units)
                self._ours = False
        except SlurmError as error:
            before = self._limit
            if not self._cut(error, alive):
                raise
            if self._limit != before and self._room(alive):
                sent += self._send(alive)
        if jobs:
            told = ", ".join(jobs)
            say(f"submitted {len(sent)} cells in {len(jobs)} sbatch calls (jobs {told})")
        if self.todo and jobs:
            say(f"{len(self.todo)} cells wait for room in the queue (submit_limit {self._limit})")
        return sent

    def _cut(self, error: SlurmError, alive: int) -> bool:
        """After a refusal for too many jobs: whether fewer at once, or later, may be taken."""
        if not is_submit_limit(error.came):
            return False
        limit = submit_limit(error.came, self.sending.site)
        if limit is None or limit < 1:
            return False
        if self._limit is not None and limit >= self._limit:
            return alive > 0  # others share it: there is room when some of ours have ended
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
        return bool(self.todo)
