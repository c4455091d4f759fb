"""A sweep on a cluster, from the login node: submitted, and followed to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from jobs.cell.lock import only_sweep
from jobs.cell.state import UNREADABLE, CellState, lay_out, refuse_others
from jobs.cell.stop import Stop, stopped_by_signals
from jobs.config.sweep import manifest_of
from jobs.display import Display, say_results, say_standing
from jobs.messages import EXIT_INTERRUPTED, EXIT_UNDECIDED, NoAnswer, say
from jobs.plan.datasets import train_images
from jobs.plan.rows import known_rates, plan_rows
from jobs.slurm.client.run import SlurmError, is_lasting
from jobs.slurm.client.squeue import JobState
from jobs.slurm.request import SweepRequest, check_cluster, enter, prepare, slurm_refusals
from jobs.slurm.submit import plan_arrays
from jobs.slurm.submitter import Submitter
from jobs.slurm.watch.endings import elsewhere
from jobs.slurm.watch.pace import Pace
from jobs.slurm.watch.reconcile import Watcher
from jobs.slurm.watch.unclear import refuse_unreadable, unclear_in
from train.config.run import RunConfig

PATIENCE_S = 60.0


def sweep_cluster(request: SweepRequest, *, force: bool, wait: bool, preflight: bool) -> int:
    """Submit every cell that has no good record and no job, and wait for all; the exit code.

    Raises:
        ConfigError: the request does not fit the site or the cluster; nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    enter(request)
    with only_sweep(request.folder), slurm_refusals(request.site):
        return _sweep(request, force=force, wait=wait, preflight=preflight)


def _sweep(request: SweepRequest, *, force: bool, wait: bool, preflight: bool) -> int:
    wanted, configs = request.wanted, request.wanted.configs
    context = prepare(request)
    images = train_images(configs, request.data, request.store)
    # rates are read from all results, and only the cost needs them
    rates = {} if request.budget is None else known_rates(request.results, configs)
    rows = plan_rows(configs, images, rates)
    lay_out(configs, request.folder, manifest_of(wanted), force=force)
    watcher = Watcher(request.folder, context.site.slurm_conf)
    cells = watcher.look(configs, patience_s=PATIENCE_S)
    for text in watcher.broken.values():
        say(text)
    refuse_unreadable(watcher.broken, watcher.queue)
    if force:
        cells = [cell if cell.alive else cell.forced() for cell in cells]
    else:
        refuse_others(cells)
    todo = [cell for cell in cells if cell.to_run and not cell.alive]
    if todo:
        seconds = {row.cell_id: row.time.seconds for row in rows}
        context = check_cluster(request, context, plan_arrays(context, todo), seconds)
    say_standing(wanted, [cell for cell in cells if not cell.alive])
    away = [cell for cell in cells if cell.elsewhere]
    for text in dict.fromkeys(cell.elsewhere for cell in away):
        say(f"not submitted again: {text}")
    cells = [cell for cell in cells if not cell.elsewhere]
    alive = [cell.config for cell in cells if cell.alive]
    if alive:
        say(f"{len(alive)} cells are in the queue already: not submitted again")
    undecided = EXIT_UNDECIDED if away else 0
    if not todo and not alive:
        code = 0 if all(cell.done for cell in cells) else say_results(wanted, cells, {})
        return code or undecided
    known = [note for note in watcher.notes if not elsewhere(note, watcher.history)]
    unclear = unclear_in(request.folder, known, todo)
    names = {cell.name for one in unclear for cell in one.cells}
    todo = [cell for cell in todo if cell.name not in names]
    submitter = Submitter(context, todo, preflight=preflight, unclear=unclear)
    try:
        sent = submitter.more(watcher.queue)
    except SlurmError as error:
        if not (wait and error.passing):
            raise
        say(f"could not submit: {error.came}: tried again")
        sent = []
    if wait:
        return _follow(request, cells, [*alive, *sent], submitter, watcher) or undecided
    if submitter.last:
        raise submitter.last
    if submitter.unclear:
        raise NoAnswer(
            f"{len(names)} cells were submitted a moment ago, and Slurm has not confirmed it: make "
            "sweep again in some minutes"
        )
    rest = "; make sweep again submits the rest" if submitter.waits() else ""
    say("the jobs go on without you: make status shows them, make report when they are done" + rest)
    return EXIT_UNDECIDED if any(cell.status == UNREADABLE for cell in cells) else 0


def _follow(
    request: SweepRequest,
    cells: Sequence[CellState],
    configs: Sequence[RunConfig],
    submitter: Submitter,
    watcher: Watcher,
) -> int:
    pace = Pace(request.site.site.poll_s)
    with stopped_by_signals() as stop, Display(cells, request.wanted.asked) as display:
        try:
            results = follow(watcher, configs, display, stop, submitter.more, submitter.waits, pace)
        except Left as error:
            say(f"left ({error}): the jobs go on; make sweep or make status comes back to them, "
                "make cancel ends them")  # fmt: skip
            return EXIT_INTERRUPTED
    return say_results(request.wanted, cells, results)


class Left(Exception):
    """The watcher was told to leave; the jobs go on."""


def follow(
    watcher: Watcher,
    configs: Sequence[RunConfig],
    display: Display,
    stop: Stop,
    refill: Callable[[Mapping[str, JobState]], list[RunConfig]],
    waiting: Callable[[], bool] = lambda: False,
    pace: Pace | None = None,
) -> dict[str, str]:
    """Wait until no cell is in the queue; returns cell id -> status of its record.

    ``refill``: gets the user's jobs, may submit more cells, and returns these.
    ``waiting``: whether it still has cells to submit.

    Raises:
        Left: ``stop`` has a reason.
        SlurmError: not all could be submitted; raised when all that could has ended.
    """
    pace = pace or Pace()
    unended = {config.cell_id(): config for config in configs}
    results: dict[str, str] = {}
    refused: SlurmError | OSError | None = None  # and it will be refused again
    trouble_since, complaint = "", ""
    older_s = 0.0
    while unended or (waiting() and refused is None):
        if stop.reason:
            raise Left(stop.reason.text)
        added: list[RunConfig] = []
        try:
            cells = watcher.look(list(unended.values()), older_s=older_s)
        except (SlurmError, OSError) as error:
            trouble_since = trouble_since or f"{datetime.now(UTC):%H:%M:%S} UTC"
            who = "Slurm" if isinstance(error, SlurmError) else "the results folder"
            display.update([], f"{who} gives no answer since {trouble_since} ({error})")
            seen = "no answer"
        else:
            trouble_since = ""
            display.update(cells, None)
            for cell in cells:
                if not cell.alive:
                    results[cell.name] = cell.status
                    del unended[cell.name]
                    display.ended(cell, cell.status, cell.why)
            if refused is None:
                try:
                    added = refill(watcher.queue)
                except (SlurmError, OSError) as error:
                    refused = error if is_lasting(error) else None
                    complaint = _complain(error, complaint, display)
            unended |= {config.cell_id(): config for config in added}
            seen = " ".join(f"{cell.job}{cell.slurm}" for cell in cells if cell.slurm)
        pause_s = pace.next_s(seen)
        if added:
            pace.again()
        if unended or (waiting() and refused is None):
            _pause(stop, pause_s)
        older_s = 0.0 if added else 0.9 * pause_s  # an older list lacks what was just submitted
    if refused is not None:
        raise refused
    return results


def _complain(error: SlurmError | OSError, before: str, display: Display) -> str:
    """Say, once, why cells could not be submitted."""
    words = error.came if isinstance(error, SlurmError) else str(error)
    if words != before:
        display.say(f"could not submit: {words}")
    if is_lasting(error):
        display.say("no more cells are submitted; the rest is watched to its end")
    return words


def _pause(stop: Stop, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not stop.reason:
        time.sleep(min(0.1, seconds))
