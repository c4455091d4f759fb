"""Run the cells of a sweep on this machine: started in order, a few at a time, watched."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from jobs.cell import lock
from jobs.cell.container import IMAGE_PYTHON, Container, container_argv
from jobs.cell.launch import CellTask, core_groups
from jobs.cell.state import BROKEN, FORCED, RUNNING, UNREADABLE, CellState, archive, conclude, stand
from jobs.cell.stop import Stop
from jobs.local.submit import ask_to_end, local_executor, log_of, submit
from jobs.messages import Interrupted
from train.errors import Unreadable
from train.record.cell_folder import earlier_attempts

POLL_S = 0.2
#: Time for supervisors to end their ranks and leave their records.
END_S = 60.0
ASK_AGAIN_S = 1.0

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Machine:
    """What the cells run on."""

    cores: tuple[int, ...]
    per_rank: int
    data: Path
    store: Path
    stall_s: float
    limit_s: float | None
    at_once: int
    container: Container | None = None  # None: ranks run in the host's environment
    gpus: int = 0  # seen here, used or not


class Display(Protocol):
    """What a person sees of a running sweep."""

    def started(self, cell: CellState) -> None: ...
    def tick(self) -> None: ...
    def ended(self, cell: CellState, status: str, why: str) -> None: ...


@dataclass
class _Running:
    cell: CellState
    cores: frozenset[int]
    attempts: int = 0  # that its record counted before this start
    job: Any = None  # None: its supervisor was started by an earlier sweep
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def over(self) -> bool:
        """submitit's process may be killed before the supervisor, which holds the cell's lock."""
        return (self.job is None or self.job.done()) and not lock.is_running(self.cell.folder)

    def ask_to_end(self) -> None:
        if self.job is not None:
            ask_to_end(self.job)
        lock.ask_to_end(self.cell.folder)


def run_cells(
    cells: Sequence[CellState], sweep: Path, machine: Machine, display: Display, stop: Stop
) -> dict[str, str]:
    """Run every cell that is to run; returns cell id -> status of its record.

    A cell starts when its cores are free; one that wants more than there are runs alone. Cells that
    an earlier sweep's supervisor still runs are waited for first: nobody knows their cores.
    However it ends, no supervisor is left behind.

    Raises:
        Interrupted: ``stop`` has a reason; all that ran was told to end, and waited for.
        OSError: the file system refuses what a start needs.
    """
    executor = local_executor(sweep)
    waiting = [cell for cell in cells if cell.to_run and cell.status != RUNNING]
    everything = frozenset(machine.cores)
    running = [_Running(cell, everything) for cell in cells if cell.status == RUNNING]
    for item in running:
        display.started(item.cell)
    results: dict[str, str] = {}
    try:
        while (waiting or running) and not stop.reason:
            while waiting and not stop.reason and (cores := _place(waiting[0], running, machine)):
                cell = waiting.pop(0)
                try:
                    running.append(_start(executor, cell, cores, machine))
                    display.started(cell)
                except Unreadable as error:
                    results[cell.config.cell_id()] = UNREADABLE
                    display.ended(cell, UNREADABLE, str(error))
            time.sleep(POLL_S)
            display.tick()
            for item in _gone(running):
                if item.job is None and (now := stand(item.cell.config, item.cell.folder)).to_run:
                    waiting.insert(0, now)
                    continue
                results[item.cell.config.cell_id()] = _report(item, display, stopped=False)
    finally:
        left = _end(running, display)
    if stop.reason:
        raise Interrupted(stop.reason.text, left)
    return results


def _place(cell: CellState, running: Sequence[_Running], machine: Machine) -> Groups | None:
    """Core groups for the next cell, or None when it has to wait."""
    gpus, per_rank = cell.config.gpus, machine.per_rank
    if not running:
        return core_groups(gpus, per_rank, machine.cores)
    if len(running) >= machine.at_once:
        return None
    taken = frozenset[int]().union(*(item.cores for item in running))
    free = tuple(core for core in machine.cores if core not in taken)
    return core_groups(gpus, per_rank, free) if gpus * per_rank <= len(free) else None


def _start(executor: Any, cell: CellState, cores: Groups, machine: Machine) -> _Running:
    if cell.status in (FORCED, BROKEN):
        archive(cell.folder)
    attempts = len(earlier_attempts(cell.folder))
    began = datetime.now(UTC)
    job = submit(executor, cell_task(cell.folder, cores, machine, resume=cell.resume))
    return _Running(cell, frozenset(chain.from_iterable(cores)), attempts, job, began)


def cell_task(cell: Path, cores: Groups, machine: Machine, *, resume: bool) -> CellTask:
    """The task of the supervisor of one cell."""
    container = machine.container
    return CellTask(
        cell=str(cell),
        data=str(machine.data),
        store=str(machine.store),
        python=sys.executable if container is None else IMAGE_PYTHON,
        cores=cores,
        resume=resume,
        stall_s=machine.stall_s,
        limit_s=machine.limit_s,
        visible_gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
        container=() if container is None else tuple(container_argv(container)),
        image=None if container is None else container.image,
        gpus_here=machine.gpus,
    )


def _gone(running: list[_Running]) -> list[_Running]:
    """Take out of ``running`` what has ended."""
    over = [item for item in running if item.over]
    for item in over:
        running.remove(item)
    return over


def _report(item: _Running, display: Display, *, stopped: bool) -> str:
    """The record decides, not submitit's pickle."""
    log = log_of(item.job) if item.job is not None else item.cell.folder / "logs"
    status, why = conclude(item.cell, item.attempts, log, item.began, stopped=stopped)
    display.ended(item.cell, status, why)
    return status


def _end(running: list[_Running], display: Display) -> list[str]:
    """Ask all that runs to end, and wait for it; returns the cells that run all the same."""
    deadline, ask_at = time.monotonic() + END_S, 0.0
    while running and time.monotonic() < deadline:
        if time.monotonic() >= ask_at:
            for item in running:
                item.ask_to_end()
            ask_at = time.monotonic() + ASK_AGAIN_S
        time.sleep(POLL_S)
        for item in _gone(running):
            _report(item, display, stopped=True)
    return [item.cell.config.cell_id() for item in running]
