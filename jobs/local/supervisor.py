"""Runs cells on this machine: each is attended in a thread of this process, a few at a time.

Signals are heard in the main thread alone. Where this process is killed, its ranks end themselves,
and the next look at a cell gives it its record.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol

from jobs.cell.attempt import Start, attend
from jobs.cell.container import IMAGE_PYTHON, Container, container_argv
from jobs.cell.launch import (
    Groups,
    by_process,
    clean_environment,
    core_groups,
    rank_argv,
    rank_environment,
)
from jobs.cell.lock import hold
from jobs.cell.missing_record import settle_lost
from jobs.cell.ranks import end_leftovers
from jobs.cell.state import BROKEN, FORCED, OTHERS, RUNNING, UNREADABLE, Standing, archive, recorded
from jobs.cell.stop import Reason, Stop
from jobs.local.image import facts_inside
from jobs.local.ranks import Ranks
from jobs.messages import ROOT, Interrupted
from train.config.run import RunConfig
from train.distributed.awake import Awake
from train.errors import Unreadable
from train.record.cell_folder import rank_file
from train.record.run import read_own_record

POLL_S = 0.2


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

    def started(self, cell: Standing) -> None: ...
    def tick(self) -> None: ...
    def ended(self, cell: Standing, status: str, why: str) -> None: ...


@dataclass(frozen=True)
class _Running:
    cell: Standing
    cores: frozenset[int]  # that no other cell may use
    end: Future[tuple[str, str]]  # status and why


def run_cells(
    cells: Sequence[Standing], machine: Machine, display: Display, stop: Stop
) -> dict[str, str]:
    """Run every cell that is to run; returns cell id -> status of its record.

    A cell starts when its cores are free; one that wants more than there are runs alone, and so do,
    before all others, those that another process runs: nobody knows their cores. However it ends,
    no rank is left behind.

    Raises:
        Interrupted: ``stop`` has a reason; all that ran was ended.
    """
    waiting = sorted((c for c in cells if c.to_run), key=lambda cell: cell.status != RUNNING)
    running: list[_Running] = []
    results: dict[str, str] = {}
    with Awake().kept() as awake, ThreadPoolExecutor(machine.at_once) as threads:
        try:
            while running or (waiting and not stop.reason):
                cores = _place(waiting[0], running, machine) if waiting else None
                if cores and not stop.reason:
                    cell = waiting.pop(0)
                    used = machine.cores if cell.status == RUNNING else chain.from_iterable(cores)
                    end = threads.submit(_attended, cell, cores, machine, stop, awake)
                    running.append(_Running(cell, frozenset(used), end))
                    display.started(cell)
                time.sleep(POLL_S)
                display.tick()
                for item in [item for item in running if item.end.done()]:
                    running.remove(item)
                    status, why = item.end.result()
                    results[item.cell.config.cell_id()] = status
                    display.ended(item.cell, status, why)
        except BaseException as error:
            stop.told = Reason("cancelled", f"make sweep failed: {error}")
            raise
    if stop.reason:
        raise Interrupted(stop.reason.text)
    return results


def _place(cell: Standing, running: Sequence[_Running], machine: Machine) -> Groups | None:
    """Core groups for the next cell, or None when it has to wait."""
    gpus, per_rank = cell.config.gpus, machine.per_rank
    if not running:
        return core_groups(gpus, per_rank, machine.cores)
    used = frozenset[int]().union(*(item.cores for item in running))
    free = tuple(core for core in machine.cores if core not in used)
    fits = len(running) < machine.at_once and gpus * per_rank <= len(free)
    return core_groups(gpus, per_rank, free) if fits and cell.status != RUNNING else None


def _attended(
    cell: Standing, cores: Groups, machine: Machine, stop: Stop, awake: Awake
) -> tuple[str, str]:
    """Run the cell to its end, once nobody else does; returns its status and why."""
    folder, config, ranks = cell.folder, cell.config, Ranks()

    def begin(attempt: int) -> None:
        base = clean_environment(os.environ)
        if machine.container is not None:
            base |= facts_inside(machine.container, ROOT)
        argv, settings = launch_line(config, folder, cores, machine, attempt, now.resume)
        for rank, own in enumerate(settings):
            ranks.start(argv, base | own, rank_file(folder, rank, "log"))

    try:
        with hold(folder, lambda: stop.reason) as ours:
            if not ours:
                return "cancelled", "before it had started"
            end_leftovers(folder)
            settle_lost(folder, config)
            if cell.status in (FORCED, BROKEN):
                archive(folder)
            now = recorded(config, folder)
            if now.status in (OTHERS, UNREADABLE):
                return now.status, now.why
            if not now.done:
                attend(
                    Start(
                        folder, config, ranks, begin, lambda: stop.reason, now.resume,
                        machine.stall_s, machine.limit_s, awake=awake,
                    )
                )  # fmt: skip
            record = read_own_record(folder, config)
    except Unreadable as error:
        return UNREADABLE, str(error)
    except (OSError, ValueError) as error:
        return "lost", f"it has no record, and none can be written: {error}"
    why = record.error
    return record.status, f"{why.what} -> {why.what_to_do}" if why else ""


def launch_line(
    config: RunConfig, folder: Path, cores: Groups, machine: Machine, attempt: int, resume: bool
) -> tuple[list[str], list[dict[str, str]]]:
    """The command of all ranks, and what each gets on top of this process's environment."""
    cores = by_process(cores, config.processes)
    python = [sys.executable]
    if machine.container is not None:
        python = [*container_argv(machine.container), IMAGE_PYTHON]
    argv = rank_argv(
        folder, data=str(machine.data), store=str(machine.store), attempt=attempt,
        stall_s=machine.stall_s, resume=resume,
    )  # fmt: skip
    gpus = {"HOROSCALE_GPUS_HERE": str(machine.gpus)} if machine.gpus else {}
    return [*python, *argv], [
        gpus
        | rank_environment(folder, cores, rank, attempt=attempt, supervisor=os.getpid(), root=ROOT)
        for rank in range(len(cores))
    ]
