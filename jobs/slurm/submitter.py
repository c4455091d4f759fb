"""Submit the cells of one run: as many as may wait in the queue, and nothing after a bad preflight
or after make cancel."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from jobs.cell.state import CellState
from jobs.messages import say
from jobs.slurm.arrays import ORDER, arrays_of, fitting
from jobs.slurm.client.reasons import (
    is_dependency,
    is_group_limit,
    is_submit_limit,
    is_unnamed_limit,
)
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.client.squeue import JobState
from jobs.slurm.job.task import PREFLIGHT, SubmissionContext
from jobs.slurm.submissions import Array, RunNote
from jobs.slurm.submit import submit_cells, submit_preflight
from jobs.slurm.throttle import Throttle
from jobs.slurm.watch.cancel import cancel, last_cancel
from jobs.slurm.watch.endings import end_of
from jobs.slurm.watch.preflight import Preflight, earlier_preflight, preflight_layout
from train.config.run import RunConfig

#: After this time one job more than the queue took is tried, since others may share its limit.
FULL_S = 300.0
Cells = dict[str, RunConfig]  # by id


@dataclass
class Room:
    """How many more jobs of the user the queue takes."""

    limit: int | None  # on jobs in the queue
    alive: int = 0  # jobs in the queue
    full: int | None = None  # as many jobs as may fit, by the last refusal of more
    _until: float = 0.0  # then one more is tried
    _part: int | None = None  # as many as may fit, after a refusal of more
    _said: bool = False  # that it is full

    def look(self, queue: Mapping[str, JobState]) -> None:
        self._part = None
        self.alive = 0
        self.add(sum(not job.ended for job in queue.values()))

    def add(self, jobs: int) -> None:
        self.alive += jobs
        if self.full is not None and self.alive > self.full:
            self.full = None  # it takes more by now

    @property
    def left(self) -> int | None:
        """None: no limit is known."""
        full = self.full
        if full is not None and time.monotonic() > self._until:
            full += 1
        known = [max(0, limit - self.alive) for limit in (self.limit, full) if limit is not None]
        return min([*known, *([] if self._part is None else [self._part])], default=None)

    def learn(self, error: SlurmError, size: int, *, usual: bool) -> None:
        """From a refusal of ``size`` jobs for a limit on jobs: half as many are tried at once.
        Raises where it is one of 0, as of a closed account, or one on size or time. ``usual``:
        cells were accepted before, so it is none of these while jobs of ours are alive."""
        ours_fill_it = self.alive and (usual or is_submit_limit(error.came))
        if size == 1 and not (ours_fill_it or is_group_limit(error.came)):
            raise error
        if not self._said:
            say(f"sbatch refuses more jobs ({error.came}): fewer are tried, and the others follow "
                "when jobs end; with submit_limit in the site file no more are tried than the "
                "queue takes")  # fmt: skip
        self._said = True
        self.full, self._until = self.alive + size - 1, time.monotonic() + FULL_S
        self._part = size // 2


@dataclass
class Submitter:
    """Submits what is to run, as far as limits allow; the rest when there is room."""

    context: SubmissionContext
    todo: list[CellState]
    held: bool  # until a preflight has passed, cells may at most wait for it in the queue
    notes: InitVar[Iterable[RunNote]] = ()  # of earlier runs
    cancelled: InitVar[str | None] = None  # the last make cancel when this run began
    watched: bool = True  # until all cells have ended; else nobody looks again
    preflight: Preflight | None = None  # that cells depend on
    #: Cells that sbatch was called for, or for their preflight, and Slurm has not confirmed it:
    #: they must not run twice.
    unclear: list[CellState] = field(default_factory=list)
    _fresh: bool = False  # it was submitted a moment ago, so the queue may not show it
    _forgotten: str | None = None  # a preflight that sbatch refuses to wait for: unknown to Slurm
    _waiting: int = 0  # cells that were last reported to wait for room
    _accepted: bool = False  # an array of cells that has not ended, or one of this run

    def __post_init__(self, notes: Iterable[RunNote], cancelled: str | None) -> None:
        self.room = Room(self.context.site.submit_limit)
        self.throttle = Throttle(self.context.site.array_parallel, self.watched)
        self._cancelled = last_cancel(self.context.folder) if cancelled is None else cancelled
        self._known = {None, *(array.job_id for note in notes for array in note.arrays)}

    def more(self, queue: Mapping[str, JobState], notes: Sequence[RunNote], unended: Cells) -> None:
        """Submit what there is room for.

        Args:
            queue: all jobs of the user.
            notes: of the sweep, read before the queue.
            unended: submitted cells that have not ended; gets others as soon as they are submitted.

        Raises:
            SlurmError: sbatch refused, or gave no answer. Where it would refuse again, nothing
                more is submitted.
            OSError: the sweep's folder cannot be written.
        """
        self._fresh, before = False, len(unended)
        self._confirm(notes, unended)
        self.throttle.look(self.context.folder, queue, notes, unended.keys())
        self._accepted = self._accepted or bool(self.throttle.layouts)
        try:
            self._submit(queue, notes, unended)
        except (SlurmError, OSError) as error:
            if is_lasting(error):
                self.todo = []
                if self._fresh and self.preflight and before == len(unended) and not self.unclear:
                    say(f"preflight: job {self.preflight.job} is cancelled: no cell waits for it")
                    self._end(self.preflight.job)
            raise
        finally:
            self.throttle.balance()

    def waits(self) -> bool:
        return bool(self.todo or self.unclear)

    def _confirm(self, notes: Sequence[RunNote], unended: Cells) -> None:
        """Cells whose submission is unclear, also one by an earlier make sweep: their job was found
        in the queue; or it may still come there; or they are to be submitted again."""
        self.todo, self.unclear = [*self.todo, *self.unclear], []
        arrived: set[str] = set()
        for note in notes:
            for array in note.arrays:
                found = array.job_id not in self._known
                if not found and (array.job_id or not note.is_recent):
                    continue
                names = set(array.cells)
                if note.kind == PREFLIGHT and self.held and not (found or self.preflight):
                    names = {cell.name for cell in self.todo}  # they depend on it
                cells = [cell for cell in self.todo if cell.name in names]
                self.todo = [cell for cell in self.todo if cell.name not in names]
                if not found:
                    self.unclear += cells
                    continue
                unended |= {cell.name: cell.config for cell in cells}
                arrived |= {array.job_id} if cells and array.job_id else set()
        if arrived and self._is_cancelled():  # and make cancel did not see these jobs
            for job in sorted(arrived):
                self._end(job)

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
            trouble = cancel([job], patience_s=5)
        except SlurmError as error:
            trouble = str(error)
        if trouble:
            say(f"job {job} may still run ({trouble}): scancel {job} ends it")

    def _submit(
        self, queue: Mapping[str, JobState], notes: Sequence[RunNote], unended: Cells
    ) -> None:
        """What a refusal complains of is changed, and the rest submitted: each change is made once,
        or leaves fewer jobs to try."""
        self.room.look(queue)
        while self.todo and not self._is_cancelled() and self.room.left != 0:
            configs = [cell.config for cell in self.todo]
            context = self.context
            arrays = arrays_of(configs, context.site, context.minutes)
            listed = {job: state for job, state in queue.items() if job != self._forgotten}
            try:
                if not self._is_open(listed, notes, arrays):
                    return
                fit = fitting(arrays, self.room.left)
                if admitted := self.throttle.admitted(fit):
                    self._send(admitted, unended)
                break
            except SlurmError as error:
                self._adapt(error)
        if self.todo and len(self.todo) != self._waiting:
            self._waiting = len(self.todo)
            known = [f"array_parallel {self.throttle.most}"]
            known += [f"submit_limit {self.room.limit}"] if self.room.limit else []
            full = self.room.full is not None
            known += ["a limit of the cluster on submitted jobs"] if full else []
            say(f"{self._waiting} cells wait for room ({', '.join(known)})")

    def _is_open(
        self, queue: Mapping[str, JobState], notes: Sequence[RunNote], arrays: Sequence[Array]
    ) -> bool:
        """Whether these may be submitted now; where there is a ``preflight``, they depend on it.
        Submits one where none serves them."""
        if not self.held:
            return True
        if self.preflight is None:
            layout = preflight_layout(arrays)
            self.preflight = earlier_preflight(self.context, layout, notes, queue)
            if self.preflight is None:
                self._asked = 1
                self.preflight = Preflight(*submit_preflight(self.context, layout))
                self._fresh = True
                self.room.add(1)
                say(f"preflight: job {self.preflight.job} on {layout} goes first; the cells start "
                    "when it has passed")  # fmt: skip
                if self._is_cancelled():  # and make cancel did not see this job
                    self._end(self.preflight.job)
                    return False
        outcome = "alive" if self._fresh else self.preflight.outcome(queue)
        if outcome == "passed":
            self.held, self.preflight = False, None
        elif outcome not in ("alive", "unseen"):
            job = self.preflight.job
            how = f" ({end_of(job, self.context.folder)})" if outcome == "left no report" else ""
            self._drop(f"the preflight, job {job}, {outcome}{how}")
        return outcome in ("passed", "alive")

    def _send(self, arrays: Sequence[Array], unended: Cells) -> None:
        before, jobs = len(unended), list[str]()
        try:
            for array in arrays:
                names = set(array.cells)
                cells = [cell for cell in self.todo if cell.name in names]
                rest = [cell for cell in self.todo if cell.name not in names]
                after = self.preflight.job if self.preflight else None
                try:
                    jobs.append(submit_cells(self.context, array, cells, after))
                except SlurmError as error:
                    if not error.refused:
                        self.throttle.sent(array)
                        self.unclear, self.todo = [*self.unclear, *cells], rest
                    self._asked = len(array.cells)
                    raise
                self.throttle.sent(array)
                self._accepted = True
                self.todo = rest
                unended |= {cell.name: cell.config for cell in cells}
                self.room.add(len(array.cells))
                if self._is_cancelled():  # and make cancel did not see this job
                    self._end(jobs[-1])
                    return
        finally:
            if jobs:
                calls = f"{len(jobs)} sbatch calls (jobs {', '.join(jobs)})"
                say(f"submitted {len(unended) - before} cells in {calls}, {ORDER}")

    def _adapt(self, error: SlurmError) -> None:
        """Change what a refusal complains of; raises where there is nothing to change."""
        if is_dependency(error.came) and self.preflight and not self._forgotten:
            self._forgotten, self.preflight = self.preflight.job, None
        elif is_submit_limit(error.came) or is_unnamed_limit(error.came):
            self.room.learn(error, self._asked, usual=self._accepted)
        else:
            raise error
