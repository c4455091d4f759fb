"""Run the cells of a sweep on this machine: started in order, a few at a time, watched."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jobs.launch import CellTask, core_groups
from jobs.ledger import Standing, archive
from jobs.submit import local_executor, submit
from train.record import RECORD_NAME, RecordError, read_record

POLL_S = 0.2
#: Status of a cell with a good record that is to run anew all the same.
FORCED = "forced"


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


class Display(Protocol):
    """What a person sees of a running sweep."""

    def started(self, cell: Standing) -> None: ...
    def tick(self) -> None: ...
    def ended(self, cell: Standing, status: str, why: str) -> None: ...


@dataclass
class _Running:
    cell: Standing
    cores: frozenset[int]
    job: Any


def run_cells(
    cells: Sequence[Standing], sweep: Path, machine: Machine, display: Display
) -> dict[str, str]:
    """Run every cell that is not done; returns cell id -> status of its record.

    A cell starts when its cores are free; one that wants more than there are runs alone.
    On Ctrl-C all running cells are told to end, and waited for, before it is raised again.
    """
    executor = local_executor(sweep)
    waiting = [cell for cell in cells if not cell.done]
    running: list[_Running] = []
    results: dict[str, str] = {}
    try:
        while waiting or running:
            while waiting and (cores := _free_cores(waiting[0], running, machine)) is not None:
                cell = waiting.pop(0)
                if cell.status == FORCED:
                    archive(cell.folder)
                job = submit(executor, _task(cell, cores, machine))
                running.append(_Running(cell, frozenset(cores), job))
                display.started(cell)
            time.sleep(POLL_S)
            display.tick()
            for item in [item for item in running if item.job.done()]:
                running.remove(item)
                status, why = _outcome(item.cell)
                results[item.cell.config.cell_id()] = status
                display.ended(item.cell, status, why)
    except KeyboardInterrupt:
        _end(running)
        raise
    return results


def _free_cores(
    cell: Standing, running: Sequence[_Running], machine: Machine
) -> tuple[int, ...] | None:
    """Cores for the next cell, or None when it has to wait."""
    if not running:
        return machine.cores
    if len(running) >= machine.at_once:
        return None
    taken = frozenset[int]().union(*(item.cores for item in running))
    free = tuple(core for core in machine.cores if core not in taken)
    wanted = cell.config.gpus * machine.per_rank
    return free[:wanted] if len(free) >= wanted else None


def _task(cell: Standing, cores: tuple[int, ...], machine: Machine) -> CellTask:
    return CellTask(
        cell=str(cell.folder),
        data=str(machine.data),
        store=str(machine.store),
        python=sys.executable,
        cores=core_groups(cell.config.gpus, machine.per_rank, cores),
        resume=cell.resume,
        stall_s=machine.stall_s,
        limit_s=machine.limit_s,
        visible_gpus=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _outcome(cell: Standing) -> tuple[str, str]:
    """The record decides, not submitit's pickle."""
    try:
        record = read_record(cell.folder / RECORD_NAME)
    except RecordError as error:
        return "lost", f"no readable record: {error}"
    return record.status, record.error.what if record.error else ""


def _end(running: Sequence[_Running]) -> None:
    for item in running:
        item.job.cancel(check=False)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline and any(not item.job.done() for item in running):
        time.sleep(POLL_S)
