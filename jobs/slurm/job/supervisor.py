"""The supervisor of a Slurm job: runs its cell, on the job's first node, outside the container."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from jobs.cell.attempt import attend
from jobs.cell.container import Image, facts_inside, image_now
from jobs.cell.state import OTHERS, UNREADABLE, ready
from jobs.cell.stop import Reason, Stop, stopped_by_signals
from jobs.messages import EXIT_CELL_FAILED
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.squeue import query
from jobs.slurm.job.allocation import WARNINGS, Allocation
from jobs.slurm.job.requeue import CellEnd, log, requeue
from jobs.slurm.job.step import launch
from jobs.slurm.job.step_failure import verdict, why_stopped
from jobs.slurm.job.step_ranks import SRUN_LOG, StepRanks
from jobs.slurm.job.task import JobTask
from train.config.run import load_config
from train.distributed.awake import Awake
from train.errors import Unreadable
from train.record.cell_folder import CONFIG_NAME, STOP_NAME
from train.record.lock import LOCK_NAME, MayRun, hold, holder
from train.record.run import GOOD, RECORD_NAME
from train.record.summary import read_summary

#: Seconds between two tries to get a cell's lock.
TRY_AGAIN_S = 5.0
#: A file server gives up the lock of a client that died within this time (90 s with NFS 4).
LOCK_PATIENCE_S = 180.0
LEFT = "left alone"


def run_cell(payload: dict[str, Any]) -> None:
    """Run the cell of one array element. The exit code is 1 if it did not complete."""
    task = JobTask.model_validate(payload).on_node(os.environ)
    allocation = Allocation.read(os.environ, task.minutes, task.site)
    with (
        stopped_by_signals() as stop,
        stopped_by_signals(signals=WARNINGS) as warned,
        Awake().kept() as awake,
    ):
        end = Supervisor(task, allocation, stop, warned, awake).run()
        log(f"{Path(task.cell).name}: {end.status}" + (f": {end.why}" if end.why else ""))
        requeue(allocation, end, stop, warned)
    if end.status not in (*GOOD, LEFT):
        sys.exit(EXIT_CELL_FAILED)


@dataclass(frozen=True)
class Supervisor:
    task: JobTask
    allocation: Allocation
    stop: Stop
    warned: Stop
    awake: Awake

    @property
    def cell(self) -> Path:
        return Path(self.task.cell)

    @property
    def allocation_now(self) -> Allocation:
        """Slurm moves the end of a job that it suspends by as long."""
        ends_at = self.allocation.ends_at + self.awake.suspended_s()
        return replace(self.allocation, ends_at=ends_at)

    def run(self) -> CellEnd:
        """Run the cell, if it can be run: its folder may be gone, or its config unreadable."""
        try:
            return self._run_when_free()
        except Unreadable as error:
            log(f"{self.cell.name}: left alone: {error}")
            return CellEnd(LEFT if isinstance(error, MayRun) else UNREADABLE)
        except (OSError, ValueError) as error:
            return CellEnd("failed", why=f"cannot be run: {error}")

    def _run_when_free(self) -> CellEnd:
        """Wait for the cell's lock while a command looks at the cell, or the remains of this job's
        own last start hold it. Another job holds it for hours, and the nodes of this one would be
        idle: then the cell is left alone."""
        cell, deadline = self.cell, time.monotonic() + LOCK_PATIENCE_S
        while self.stop.reason is None:
            try:
                with hold(cell, job=self.allocation.job, ended=self._has_ended) as ours:
                    if ours:
                        return self._run()
            except MayRun as error:
                # a command signs for a moment, and its lock may not reach this node
                if self._has_ended(error.who.job) is False or time.monotonic() > deadline:
                    raise
            lock = holder(cell)
            if lock and self._has_ended(lock.job) is False:
                log(f"{cell.name}: job {lock.job} runs it: left alone")
                return CellEnd(LEFT)
            if time.monotonic() > deadline:
                log(f"{cell.name}: {cell / LOCK_NAME} is locked by {lock or 'somebody'}, "
                    "who runs no rank of it: left alone; make sweep tries again")  # fmt: skip
                return CellEnd(LEFT)
            self.stop.wait(TRY_AGAIN_S)
        return CellEnd("cancelled")  # the record is another supervisor's

    def _has_ended(self, job: str | None) -> bool | None:
        """Whether a job runs no ranks, an earlier start of this one included, by Slurm's word; None
        where it says nothing: two starts of a cell at once would be worse than one too few."""
        if job is None:
            return None
        if job == self.allocation.job:
            return True
        try:
            state = query(arrays=[job]).get(job)
        except SlurmError:
            return None
        return state is None or state.ended or state.waits

    def _run(self) -> CellEnd:
        cell = self.cell
        config = load_config(cell / CONFIG_NAME)
        now = ready(config, cell, self._is_older)
        if now.status in (OTHERS, UNREADABLE):
            log(f"{cell.name}: left alone: {now.why}")
        if now.done or now.status in (OTHERS, UNREADABLE):
            return CellEnd(now.status)
        ranks = StepRanks(cell / "logs" / SRUN_LOG)

        def begin(attempt: int) -> None:
            at = self.allocation_now
            line, settings = launch(self.task, config, cell, attempt, at, now.resume)
            ranks.start(line, settings | self._facts(), config.processes)

        record = attend(
            cell, config, ranks,
            begin=begin,
            stop=partial(self._tick, cell / "logs" / STOP_NAME),
            resume=now.resume,
            stall_s=self.task.stall_s,
            knows=lambda: verdict(cell, ranks, self.allocation),
            explain=lambda stopped: why_stopped(
                stopped, ranks, self.allocation_now, self.stop, self.warned
            ),
            job=self.allocation.job,
            awake=self.awake,
        )  # fmt: skip
        this = record.attempts[-1].number
        return CellEnd(record.status, sum(e.attempt == this for e in record.epochs), record)

    def _is_older(self) -> bool:
        """A record of a cell that is run by force: that of an earlier start of this job counts."""
        task = self.task
        return task.forced and read_summary(self.cell / RECORD_NAME).ended_at < task.asked_at

    def _tick(self, ask: Path) -> Reason | None:
        due = self.warned.at is not None and self.allocation_now.is_due(self.warned.at)
        with suppress(OSError):  # the next poll tries again
            if due and not ask.exists():
                ask.touch()  # ranks stop when their epoch is over, before the job is ended
        return self.stop.reason

    def _facts(self) -> dict[str, str]:
        """What a rank cannot find out inside the container, for its record.

        Raises:
            ConfigError: the image is gone, or is none any more.
        """
        task = self.task
        image = image_now(Image(task.image, task.image_digest, task.image_mark))
        if image.digest != task.image_digest:
            log(
                f"{image.path} was replaced while the job waited: sha256 {task.image_digest} when "
                f"it was submitted, {image.digest} now, which the record carries"
            )
        return facts_inside(image, task.git_commit, task.git_dirty)
