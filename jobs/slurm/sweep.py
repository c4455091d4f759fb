"""A sweep on a cluster, from the login node: submitted, and followed to its end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from jobs.cell.lock import only_sweep
from jobs.cell.state import CellState, checked, keep_networks, lay_out, stand
from jobs.cell.stop import Stop, stopped_by_signals
from jobs.config.sweep import manifest_of
from jobs.display import Display, say_results, say_standing
from jobs.messages import EXIT_INTERRUPTED, EXIT_UNDECIDED, NoAnswer, say
from jobs.plan.cost import time_limits
from jobs.plan.datasets import train_images
from jobs.plan.estimate import completed_cells
from jobs.plan.rows import plans_of
from jobs.slurm.arrays import arrays_of
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.request import SweepRequest, check_cluster, prepare, slurm_refusals
from jobs.slurm.submitter import Submitter
from jobs.slurm.watch.cancel import last_cancel
from jobs.slurm.watch.endings import pause_s
from jobs.slurm.watch.reconcile import Watcher
from train.config.run import RunConfig

PATIENCE_S = 60.0


def sweep_cluster(request: SweepRequest, *, force: bool, wait: bool, preflight: bool) -> int:
    """Submit every cell that has no good record and no job, and wait for all; the exit code.

    Raises:
        ConfigError: the request does not fit the site or the cluster; nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    wanted, context = request.wanted, prepare(request)
    with only_sweep(request.folder), slurm_refusals(request.site):
        images = train_images(wanted.configs, request.data, request.store, request.folder)
        plans = plans_of(wanted.configs, images)
        lay_out(wanted.configs, request.folder, manifest_of(wanted), force=force)
        keep_networks(wanted, request.folder)
        cancelled = last_cancel(request.folder)
        watcher = Watcher(request.folder, context.site)
        cells = watcher.look(wanted.configs, patience_s=PATIENCE_S)
        for at, cell in enumerate(cells):
            if cell.attempt and not (cell.attempt.job or cell.job):
                # by a make sweep on a login node: no other machine can know that it has ended
                cells[at] = stand(cell.config, cell.folder)
        cells = checked(cells, force=force)
        todo = [cell for cell in cells if cell.to_run and not cell.alive]
        if todo:
            configs = [cell.config for cell in todo]
            arrays_of(configs, context.site)  # raises where cells do not fit the site
            # read from all results: only time limits need them
            needed = configs if context.site.time_min is None else ()
            completed = completed_cells(request.results, needed)
            limits = time_limits(request.site, request.results, plans, todo, completed)
            context = check_cluster(request, replace(context, minutes=limits))
        say_standing(wanted, cells)
        for text, count in Counter(cell.elsewhere for cell in cells if cell.elsewhere).items():
            say(f"{count} cells are left alone: {text}")
        queued = [cell.config for cell in cells if cell.alive and not cell.elsewhere]
        if queued:
            say(f"{len(queued)} cells are in the queue already: not submitted again")
        submitter = Submitter(context, todo, preflight, watcher.notes, cancelled, watched=wait)
        if not (queued or submitter.waits()):
            return 0 if all(cell.done for cell in cells) else say_results(wanted, cells)
        if wait:
            with stopped_by_signals() as stop, Display(cells, wanted.asked) as display:
                follow(watcher, queued, display, stop, submitter, context.site.poll_s)
            if stop.reason:
                say(f"left ({stop.reason.text}): the jobs go on; make sweep or make status comes "
                    "back to them, make cancel ends them")  # fmt: skip
                return EXIT_INTERRUPTED
            return say_results(wanted, list(display.cells.values()))
        return _submit(cells, submitter, watcher)


def _submit(cells: Sequence[CellState], submitter: Submitter, watcher: Watcher) -> int:
    """Submit what there is room for, and leave; the exit code."""
    unended = {cell.name: cell.config for cell in cells if cell.alive and not cell.elsewhere}
    submitter.more(watcher.queue, watcher.notes, unended)
    if submitter.unclear:
        raise NoAnswer(
            f"{len(submitter.unclear)} cells, or the preflight that they depend on, were submitted "
            "a moment ago, and Slurm has not confirmed it: make sweep again in some minutes"
        )
    if not (unended or submitter.preflight):
        raise NoAnswer(
            "no cell could be submitted yet, since the queue has no room, say: make sweep again in "
            "some minutes"
        )
    rest = "; make sweep again submits the rest" if submitter.waits() else ""
    say("the jobs go on without you: make status shows them, make report when they are done" + rest)
    return EXIT_UNDECIDED if any(cell.left_alone for cell in cells) else 0


def follow(
    watcher: Watcher,
    queued: Sequence[RunConfig],
    display: Display,
    stop: Stop,
    submitter: Submitter,
    every_s: float | None = None,
) -> None:
    """Submit cells as far as there is room, and wait until none is in the queue, or ``stop`` has a
    reason. ``queued``: cells that are there already.

    Raises:
        SlurmError, OSError: not all could be submitted; raised when all that could has ended.
    """
    unended = {config.cell_id(): config for config in queued}
    refused: SlurmError | OSError | None = None  # what will be refused again
    trouble_since, complaint = "", ""
    rest_s, began = 0.0, time.monotonic()
    while unended or submitter.waits():
        stop.wait(rest_s)
        if stop.reason:
            return
        try:
            cells = watcher.look(list(unended.values()))
        except (SlurmError, OSError) as error:
            trouble_since = trouble_since or f"{datetime.now(UTC):%H:%M:%S} UTC"
            who = "Slurm" if isinstance(error, SlurmError) else "the results folder"
            display.update([], f"{who} gives no answer since {trouble_since} ({error})")
        else:
            trouble_since = ""
            display.update(cells, None)
            for cell in cells:
                if not cell.alive:
                    del unended[cell.name]
                    display.ended(cell, cell.status, cell.why)
            try:
                submitter.more(watcher.queue, watcher.notes, unended)
            except (SlurmError, OSError) as error:
                words = error.printed if isinstance(error, SlurmError) else str(error)
                if words != complaint:
                    display.say(f"could not submit: {words}")
                complaint = words
                if is_lasting(error):
                    display.say("no more cells are submitted; the rest is watched to its end")
                    refused = error
        rest_s = pause_s(every_s, began)
    if refused is not None:
        raise refused
