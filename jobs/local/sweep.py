"""A sweep on this machine: planned, and run, a few cells at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path

from jobs.cell.launch import Groups, core_groups
from jobs.cell.needs import basic_needs, needs_of, usable_tmpdir
from jobs.cell.state import CellState, checked, keep_networks, lay_out, recorded, stand
from jobs.cell.stop import Reason, Stop, stopped_by_signals
from jobs.config.sweep import Sweep, manifest_of
from jobs.display import Display, say_results, say_standing
from jobs.local.image import (
    check_gpu_models,
    check_gpus,
    container_here,
    gpus_here,
    remark_on_gpus,
    try_out,
)  # fmt: skip
from jobs.local.supervisor import Machine, launch_line, run_cell
from jobs.messages import EXIT_INTERRUPTED, ROOT, Interrupted, say, without_links
from jobs.plan.datasets import train_images
from jobs.plan.estimate import completed_cells, known_rates
from jobs.plan.rows import plan_rows, plans_of
from jobs.plan.text import plan_lines
from train.config.run import RunConfig
from train.distributed.awake import Awake
from train.distributed.machine.claims import is_held
from train.distributed.machine.cores import in_groups, spread
from train.distributed.machine.quota import quotas_here, usable_cores
from train.distributed.watchdog import STALL_S

POLL_S = 0.2
#: Cells that were told to end have done so by then (jobs.cell.ranks takes 63 s where a rank cannot
#: be killed), or hang in the kernel themselves.
END_S = 90.0
SHARED = (
    "other runs on this machine hold cores, and too few are left: ranks share them, and such times "
    "are no scaling figures (oversubscribed in the record)"
)


def plan_here(wanted: Sweep, results: Path, machine: Machine) -> None:
    """Print what the sweep would do on this machine."""
    folder = results / wanted.name
    cells = checked([recorded(c, folder / c.cell_id()) for c in wanted.configs])
    images = train_images(wanted.configs, machine.data, machine.store)
    rates = known_rates(completed_cells(results, (cell.config for cell in cells if not cell.done)))
    rows = plan_rows(wanted.configs, images, rates)
    # one line for each number of processes and cores: within it, only names differ
    first = {(c.gpus, c.processes): c for c in reversed(wanted.configs)}
    lines = {c.cell_id(): _shown_line(c, folder / c.cell_id(), machine) for c in first.values()}
    print("\n".join(plan_lines(rows, lines, {c.config.cell_id() for c in cells if c.done})))
    remark_on_gpus(wanted, machine.container, machine.gpus)


def _shown_line(config: RunConfig, folder: Path, machine: Machine) -> list[str]:
    cores = core_groups(config.gpus, machine.per_rank, machine.cores, config.processes)
    argv, settings = launch_line(folder, cores, machine, attempt=1, resume=False)
    names = [f"HOROSCALE_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CORES")]
    return ["env", *(f"{name}={settings[0][name]}" for name in names), *argv]


def sweep_here(wanted: Sweep, folder: Path, *, force: bool, machine: Machine) -> int:
    """Run every cell that has no good record; returns the exit code."""
    plans_of(wanted.configs, train_images(wanted.configs, machine.data, machine.store, folder))
    lay_out(wanted.configs, folder, manifest_of(wanted), force=force)
    keep_networks(wanted, folder)
    cells = checked([stand(c, folder / c.cell_id()) for c in wanted.configs], force=force)
    say_standing(wanted, cells)
    if all(cell.done for cell in cells):
        return 0
    remark_on_gpus(wanted, machine.container, machine.gpus)
    if machine.container is not None:
        # bundled data leave no folder, and only what is there can be bound
        for needed in (machine.data, machine.store):
            needed.mkdir(parents=True, exist_ok=True)
        machine = replace(machine, container=try_out(machine.container))
    # make, told to end, ends the shell of its recipe, and nobody tells us
    parent = os.getppid() if "MAKELEVEL" in os.environ else None
    with stopped_by_signals(parent) as stop, Display(cells, wanted.asked) as display:
        run_cells(cells, machine, display, stop)
    return say_results(wanted, list(display.cells.values()))


def run_cells(cells: Sequence[CellState], machine: Machine, display: Display, stop: Stop) -> None:
    """Run every cell that is to run; ``display`` gets what became of each.

    A cell starts when its cores are free; one that wants more than there are runs alone. However
    it ends, no rank is left behind.

    Raises:
        Interrupted: ``stop`` has a reason; all that ran was ended.
    """
    waiting = [cell for cell in cells if cell.to_run]
    running: dict[Future[tuple[str, str]], tuple[CellState, Groups]] = {}
    told_at: float | None = None
    shared = False
    with Awake().kept() as awake, ThreadPoolExecutor(machine.at_once) as threads:
        try:
            while running or (waiting and not stop.reason):
                used = [groups for _, groups in running.values()]
                cores = _free_cores(waiting[0], used, machine) if waiting else None
                if cores and not stop.reason:
                    if not shared and any(map(is_held, chain.from_iterable(cores))):
                        shared = True
                        display.say(SHARED)
                    cell = waiting.pop(0)
                    end = threads.submit(run_cell, cell, cores, machine, stop, awake)
                    running[end] = cell, cores
                    display.started(cell)
                time.sleep(POLL_S)
                display.tick()
                for end in [end for end in running if end.done()]:
                    cell, _ = running.pop(end)
                    status, why = end.result()
                    display.ended(cell, status, why)
                told_at = awake.look() if stop.reason and told_at is None else told_at
                if running and told_at is not None and awake.look() > told_at + END_S:
                    names = ", ".join(cell.name for cell, _ in running.values())
                    display.say(f"interrupted: could not be ended in time: {names}")
                    display.__exit__()  # a terminal gets its cursor back
                    os._exit(EXIT_INTERRUPTED)  # the threads would be waited for; ranks see it
        except BaseException as error:
            stop.told = Reason("cancelled", f"make sweep failed: {error}")
            raise
    if stop.reason:
        raise Interrupted(stop.reason.text)


def _free_cores(cell: CellState, used: Collection[Groups], machine: Machine) -> Groups | None:
    """Core groups for the next cell, or None when it has to wait. ``used``: those of running
    cells."""
    config, per_rank = cell.config, machine.per_rank
    busy = set(chain.from_iterable(chain.from_iterable(used)))
    most = len(machine.cores) - len(busy)
    if used and (len(used) == machine.at_once or config.gpus * per_rank > most):
        return None
    free = [core for core in (*machine.cores, *machine.more_cores) if core not in busy]
    # first those that no other run holds; equals keep their order
    free = sorted(free, key=is_held)[:most]
    return core_groups(config.gpus, per_rank, free, config.processes)


def machine_for(
    wanted: Sweep,
    data: Path,
    store: Path,
    folder: Path,
    *,
    image: str = "",
    at_once: int = 1,
    stall_s: float = STALL_S,
) -> Machine:
    """Equal core groups for all cells of a sweep, so that its times can be compared.

    ``folder``: of the sweep's results; ``image``: as IMAGE= says it, empty for none.

    Raises:
        ConfigError: no such image, nothing here that starts it, a folder that cannot be bound.
    """
    all_cores = spread(sorted(os.sched_getaffinity(0)))
    usable = usable_cores(len(all_cores), quotas_here())
    if usable < len(all_cores):
        say(
            f"ranks use {usable} of the {len(all_cores)} cores that are seen: a CPU quota of "
            "this shell's control group allows no more"
        )
    most = max(config.gpus for config in wanted.configs)
    per_rank = wanted.cores_per_rank or max(1, usable // most)
    cores = tuple(in_groups(all_cores[:usable], per_rank))
    data, store, gpus = without_links(data), without_links(store), gpus_here(os.environ)
    needs, container = needs_of(wanted, results=folder, data=data, store=store), None
    tmpdir = usable_tmpdir(os.environ.get("TMPDIR"))
    if image:
        container = container_here(image, gpus, (*basic_needs(str(ROOT), image, tmpdir), *needs))
        check_gpu_models(image, os.environ)
        check_gpus(wanted, container, gpus, at_once)
    more_cores = tuple(all_cores[usable:])
    return Machine(
        cores, per_rank, data, store, stall_s, at_once, container, gpus, tmpdir, more_cores
    )
