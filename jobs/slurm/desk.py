"""`make status`, `make cancel`, `make logs` and `make preflight`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from jobs.ledger import Standing, recorded
from jobs.lock import hold
from jobs.options import EXIT_CELL_FAILED, EXIT_UNDECIDED, NoAnswer, say
from jobs.settle import settle_unstarted
from jobs.slurm import board
from jobs.slurm.cancel import alive, cancel
from jobs.slurm.commands import SlurmError
from jobs.slurm.follow import Watcher, wait_for
from jobs.slurm.gate import largest, preflight_array, preflight_task, submit_preflight
from jobs.slurm.history import History
from jobs.slurm.inventory import Place, submitted_cells
from jobs.slurm.logs import find_cell, show
from jobs.slurm.look import Look, look
from jobs.slurm.notes import read_notes
from jobs.slurm.preflight import FOLDER_NAME, read_preflight
from jobs.slurm.program import Wish, check, enter, prepare, slurm_refusals
from jobs.slurm.script import job_name
from jobs.slurm.send import plan_arrays
from jobs.slurm.shape import Shape
from jobs.slurm.status import as_json, read_life, survey_slurm
from jobs.slurm.where import become_owner
from jobs.sweep import Sweep
from train.errors import ConfigError

OTHER_LINES = 16


def status(wanted: Sweep, folder: Path, *, for_programs: bool) -> int:
    """Print where every cell stands; exit code 3 where Slurm does not say."""
    become_owner(folder)
    found = _look(wanted, folder)
    for remark in found.remarks:
        say(remark)
    if for_programs:
        print(
            json.dumps(as_json(wanted.name, found.states, found.asked_at, found.trouble), indent=1)
        )
    else:
        console = Console()
        if console.is_terminal:
            rows = max(8, console.height - OTHER_LINES)
            console.print(board.table(found.states, found.trouble, rows, width=console.width))
        else:
            for line in board.lines(found.states, found.trouble, len(found.states)):
                print(line)
    return EXIT_UNDECIDED if found.trouble else 0


def _look(wanted: Sweep, folder: Path) -> Look:
    """Without a note nothing was ever submitted, and Slurm is not asked."""
    configs = wanted.configs
    notes, _ = read_notes(folder)
    if not notes:
        cells = [recorded(config, folder / config.cell_id()) for config in configs]
        states = survey_slurm([(cell, read_life(cell)) for cell in cells], {}, (), {})
        return Look(states, datetime.now(UTC), None)
    return look(configs, folder, notes[-1].job_name, History(notes[-1].slurm_conf))


def cancel_jobs(wanted: Sweep, folder: Path) -> int:
    """End all jobs of the sweep: running cells leave their own records, waiting ones get theirs.

    Raises:
        ConfigError: nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    become_owner(folder)
    notes, _ = read_notes(folder)
    if not notes and not (folder / FOLDER_NAME).is_dir():
        raise ConfigError(f"{folder} holds no note of a submission: nothing to cancel")
    conf = notes[-1].slurm_conf if notes else os.environ.get("SLURM_CONF")
    watcher = Watcher(folder, job_name(wanted.name, folder), conf)
    try:
        queue = watcher.queue(30)
        there = [c for c in wanted.configs if (folder / c.cell_id()).is_dir()]
        places = watcher.look(there, notes, queue)
        found = alive(queue)
        answer = cancel(found, watcher.slurm_conf, name=job_name(wanted.name, folder))
    except SlurmError as error:
        raise NoAnswer(f"{error}: some jobs may have been cancelled; make cancel again") from error
    if answer.code:
        raise NoAnswer(f"scancel refused: {answer.words}")
    waiting = [place for place in places if place.job is not None and place.job.waits]
    for place in waiting:
        _settle_waiting(place)
    count = sum(found.values())
    say(f"{count} jobs were told to end" if count else "no job of this sweep is in the queue")
    if waiting:
        say(f"{len(waiting)} cells had not begun; make sweep submits them again")
    return 0


def _settle_waiting(place: Place) -> None:
    """No supervisor of a waiting job will ever run; one that goes on later keeps its record."""
    cell = place.standing
    if place.submitted is None or cell.status not in ("new", "broken record"):
        return
    with hold(cell.folder) as ours:
        if ours:
            settle_unstarted(
                cell.folder, cell.config, place.submitted.log, place.submitted.at,
                "make cancel, while it waited in the queue", "cancelled",
            )  # fmt: skip


def logs(wanted: Sweep, folder: Path, asked: str) -> int:
    become_owner(folder)
    name = find_cell(asked, [config.cell_id() for config in wanted.configs])
    told = submitted_cells(folder, read_notes(folder)[0]).get(name)
    for line in show(folder / name, told.log if told else None):
        print(line)
    return 0


def preflight(wish: Wish, nodes: int | None) -> int:
    """Submit the preflight job alone and wait for its report; exit code 0, 1, or 3 without one.

    ``nodes``: on how many; None: as many as the sweep's largest cell.

    Raises:
        ConfigError: the cluster cannot run it.
        NoAnswer: Slurm does not answer.
    """
    enter(wish)
    wish.folder.mkdir(parents=True, exist_ok=True)
    sending = prepare(wish)
    shape = largest(plan_arrays(sending, _all(wish)))
    if nodes is not None:
        shape = Shape(nodes, sending.site.ranks_per_node)
    task = preflight_task(sending, shape, datetime.now(UTC))
    watcher = Watcher(wish.folder, sending.job_name, sending.site.slurm_conf)
    with slurm_refusals(wish):
        check(wish, [preflight_array(sending, shape)], {})
        job = submit_preflight(sending, task)
        say(f"preflight: job {job} on {shape}")
        wait_for(job, watcher, "preflight")
    report = read_preflight(Path(task.folder))
    if report is None:
        say(f"the preflight job {job} left no report; see {task.folder}")
        return EXIT_UNDECIDED
    for problem in report.problems:
        say(f"preflight: {problem}")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    verdict = "whole" if report.ok else "NOT whole"
    say(f"preflight: {verdict}: {', '.join(report.nodes)} ({versions})")
    return 0 if report.ok else EXIT_CELL_FAILED


def _all(wish: Wish) -> Sequence[Standing]:
    return [recorded(config, wish.folder / config.cell_id()) for config in wish.wanted.configs]
