"""The supervisor of a Slurm job: runs its cells one after another, on the job's first node, outside
the container."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jobs.cell.attempt import Start, attend
from jobs.cell.container import IMAGE_PYTHON, NO_IMAGE, code_facts
from jobs.cell.image import Image, image_now
from jobs.cell.lock import LOCK_NAME, hold, holder
from jobs.cell.missing_record import begun_in, is_good, settle_lost
from jobs.cell.state import UNREADABLE, CellState, archive, recorded
from jobs.cell.stop import Reason, Stop, stopped_by_signals
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.squeue import RUNNING, query
from jobs.slurm.job.allocation import Allocation, Warned, is_due, warned_by_signal, warned_why, why
from jobs.slurm.job.requeue import Ran, go_on, log
from jobs.slurm.job.step import GLOO, rank_argv, rank_base, step_argv, step_environment
from jobs.slurm.job.step_failure import verdict
from jobs.slurm.job.step_ranks import SRUN_LOG, StepRanks
from jobs.slurm.job.task import JobTask, is_older
from train.config.run import RunConfig, load_config
from train.distributed.awake import Awake
from train.errors import Unreadable
from train.record.cell_folder import CONFIG_NAME, STOP_NAME, earlier_attempts, read_epochs
from train.record.run import GOOD, RECORD_NAME, RecordError, read_record
from train.run.provenance import git_state

EXIT_CELL_FAILED = 1
#: Seconds between two questions whether the holder of a cell's lock is alive.
ASK_AGAIN_S = 15.0
#: A file server gives up the lock of a client that died within this time (90 s with NFS 4).
LOCK_PATIENCE_S = 180.0
LEFT = "left alone"


def run_unit(told: dict[str, Any]) -> None:
    """Run the cells of one array element. Ends with exit code 1 when one of them did not complete.

    Also the function that pickles of jobs name which an earlier version submitted.
    """
    task = JobTask.model_validate(told)
    allocation = Allocation.read(os.environ, task.minutes, task.site.slurm_conf, task.site.signal_s)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ran: dict[str, Ran] = {}
    with (
        stopped_by_signals() as stop,
        warned_by_signal() as warned,
        Awake().kept() as awake,  # of the job: a later cell's end has moved, too
    ):
        for name in task.cells:
            if stop.reason is None and warned.at is None:
                ran[name] = _run_apart(task, Path(name), allocation, stop, warned, awake)
                log(f"{Path(name).name}: {ran[name].status}")
        go_on(task, allocation, ran, stop, warned=warned.at is not None)
    if any(name not in ran or ran[name].status not in (*GOOD, LEFT) for name in task.cells):
        sys.exit(EXIT_CELL_FAILED)


def _run_apart(
    task: JobTask, cell: Path, allocation: Allocation, stop: Stop, warned: Warned, awake: Awake
) -> Ran:
    """A cell that cannot be run (its folder is gone, its config unreadable) stops no other one."""
    try:
        return _run(task, cell, allocation, stop, warned, awake)
    except Unreadable as error:
        log(f"{cell.name}: left alone: {error}")
        return Ran(UNREADABLE)
    except (OSError, ValueError) as error:
        log(f"{cell.name}: cannot be run: {error}")
        return Ran("failed")


def _run(
    task: JobTask, cell: Path, allocation: Allocation, stop: Stop, warned: Warned, awake: Awake
) -> Ran:
    asked = _Asked(cell, allocation, stop)
    with hold(cell, asked.gives_up, job=allocation.job) as ours:
        if not ours:
            return Ran("cancelled" if stop.reason else LEFT)  # the record is another supervisor's
        if other := _still_runs(cell, allocation):
            log(f"{cell.name}: job {other} runs it: left alone")
            return Ran(LEFT)
        config = load_config(cell / CONFIG_NAME)
        settle_lost(cell, config)
        _put_aside(task, cell)
        if is_good(cell, config):
            return Ran(read_record(cell / RECORD_NAME).status)
        before = len(earlier_attempts(cell))
        status = attend(_start(task, recorded(config, cell), allocation, stop, warned, awake))
        return Ran(status, sum(epoch.attempt > before for epoch in read_epochs(cell)))


@dataclass
class _Asked:
    """Whether to go on waiting for the cell's lock: not for another job, which holds it for hours
    while the nodes of this one would idle; but for whoever looks at the cell, and for the remains
    of this job's own last start."""

    cell: Path
    allocation: Allocation
    stop: Stop
    _next_at: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    def gives_up(self) -> bool:
        if self.stop.reason is not None:
            return True
        if time.monotonic() < self._next_at:
            return False
        self._next_at = time.monotonic() + ASK_AGAIN_S
        there = holder(self.cell)
        other = there.job if there else None
        if other in (None, self.allocation.job):
            other = _still_runs(self.cell, self.allocation)
        elif not _is_alive(other, self.allocation):
            other = None
        if other is None and time.monotonic() - self._began > LOCK_PATIENCE_S:
            file = self.cell / LOCK_NAME
            log(f"{self.cell.name}: {file} is locked by {there or 'somebody'}, who runs no rank of "
                "it: left alone; make sweep tries again")  # fmt: skip
            return True
        if other is not None:
            log(f"{self.cell.name}: job {other} runs it: left alone")
        return other is not None


def _still_runs(cell: Path, allocation: Allocation) -> str | None:
    """Another job whose start of this cell is alive, also where locks do not reach its node."""
    begun = begun_in(cell)
    if begun is None or begun.job in (None, allocation.job):
        return None
    return begun.job if _is_alive(str(begun.job), allocation) else None


def _is_alive(job: str, allocation: Allocation) -> bool:
    """Whether Slurm says that the job runs, or does not answer: two starts of one cell at once
    would be worse than one too few."""
    try:
        state = query(allocation.slurm_conf, arrays=[job]).get(job)
    except SlurmError:
        return True
    return state is not None and state.state in RUNNING


def _put_aside(task: JobTask, cell: Path) -> None:
    """An older record of a cell that is run by force, or a broken one: kept, whole."""
    try:
        old = is_older(read_record(cell / RECORD_NAME).ended_at, task)
    except RecordError:
        archive(cell)
    else:
        if old and str(cell) in task.forced:
            archive(cell)


def _start(
    task: JobTask, cell: CellState, allocation: Allocation, stop: Stop, warned: Warned, awake: Awake
) -> Start:
    folder, config = cell.folder, cell.config
    ranks = StepRanks(folder / "logs" / SRUN_LOG)

    def job() -> Allocation:
        """Slurm moves the end of a job that it suspends by as long."""
        return replace(allocation, ends_at=allocation.ends_at + awake.suspended_s())

    def tick() -> Reason | None:
        ask = folder / "logs" / STOP_NAME
        due = warned.at is not None and is_due(job(), warned.at, time.time())
        if due and not ask.exists():
            ask.touch()  # ranks stop when their epoch is over, before the job is ended
        return stop.reason

    def explain(stopped: Reason | None) -> Reason | None:
        if stopped is not None and stop.reason is None:
            return stopped  # our own watch had a reason
        told = why(job(), stop, step_cancelled=ranks.said.aborted)
        return told or (warned_why(job(), warned.at) if warned.at else None)

    return Start(
        folder, config, ranks,
        begin=lambda attempt: _begin(task, cell, job(), attempt, ranks),
        stop=tick,
        resume=cell.resume,
        stall_s=task.stall_s,
        limit_s=None,
        knows=lambda: verdict(folder, ranks, allocation),
        explain=explain,
        job=allocation.job,
        awake=awake,
    )  # fmt: skip


def _begin(
    task: JobTask, cell: CellState, allocation: Allocation, attempt: int, ranks: StepRanks
) -> None:
    argv, settings = launch(task, cell.config, cell.folder, attempt, allocation, cell.resume)
    base = rank_base(os.environ)
    ranks.start(argv, base | settings | _facts(task), cell.config.processes)


def launch(
    task: JobTask,
    config: RunConfig,
    cell: Path,
    attempt: int,
    allocation: Allocation,
    resume: bool,
) -> tuple[list[str], dict[str, str]]:
    """The launch line and what it adds to the environment; pure."""
    site, shape = task.site, NodeLayout(config.gpus // task.ranks_per_node, task.ranks_per_node)
    container = task.container(str(cell))
    python = sys.executable if task.image == NO_IMAGE else IMAGE_PYTHON
    rank = rank_argv(
        python, cell, data=task.data, store=task.store, attempt=attempt, stall_s=task.stall_s,
        resume=resume, stop_at=allocation.ends_at - site.signal_s,
    )  # fmt: skip
    logs = cell / "logs"
    # a new name for each start: an old address must never be met at
    meeting = logs / f"rendezvous-{attempt}-{allocation.job}-{allocation.restarts}"
    settings = step_environment(
        site, container, root=Path(task.root), rendezvous=meeting if site.mpi == GLOO else None
    )
    together = config.gpus // config.processes
    return step_argv(site, shape, container, rank, logs, together=together), settings


def _facts(task: JobTask) -> dict[str, str]:
    """What a rank cannot find out inside the container, for its record.

    Raises:
        ConfigError: the image is gone, or is none any more.
    """
    facts = {"HOROSCALE_BLOCK": task.block}
    image = image_now(Image(task.image, task.image_digest, task.image_mark))
    if image.digest:
        facts["HOROSCALE_IMAGE_DIGEST"] = image.digest
    if image.digest != task.image_digest:
        log(
            f"{image.path} was replaced while the job waited: sha256 {task.image_digest} when it "
            f"was submitted, {image.digest} now, which the record carries"
        )
    commit, dirty = task.git_commit, task.git_dirty
    if (Path(task.root) / ".git").exists():
        # submitted by a version that ran the checkout as it is now, and is known by it
        commit, dirty = git_state(Path(task.root))
    return facts | code_facts(commit, dirty)
