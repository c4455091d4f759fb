"""`make status`, `make cancel`, `make logs` and `make preflight`."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.cell.lock import hold
from jobs.cell.missing_record import settle_unstarted
from jobs.cell.state import BROKEN, NEW, CellState, recorded
from jobs.config.site import NodeLayout
from jobs.config.sweep import Sweep
from jobs.logs import find_cell, show
from jobs.messages import EXIT_CELL_FAILED, EXIT_UNDECIDED, NoAnswer, say
from jobs.slurm.arrays import arrays_of
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import query
from jobs.slurm.client.user import become_owner
from jobs.slurm.job.task import read_preflight
from jobs.slurm.preflight import preflight_layout
from jobs.slurm.request import SweepRequest, check_cluster, enter, prepare, slurm_refusals
from jobs.slurm.submissions import (
    RunNote,
    adopt,
    read_notes,
    submitted_cells,
)
from jobs.slurm.submit import preflight_array, submit_preflight
from jobs.slurm.watch.cancel import announce_cancel, cancel, jobs_of_sweep
from jobs.slurm.watch.endings import elsewhere
from jobs.slurm.watch.pace import end_of, wait_for
from jobs.slurm.watch.reconcile import Watcher
from jobs.table import lines, table
from train.config.plan import epochs_to_train
from train.errors import ConfigError

#: Cells whose jobs cannot be asked about, in remarks.
MAX_REMARKS = 3
#: make cancel looks again for what a make sweep was submitting meanwhile.
TURNS, AGAIN_S = 3, 1.0


def status(wanted: Sweep, folder: Path, *, for_programs: bool) -> int:
    """Print where every cell stands; exit code 3 where Slurm does not say."""
    become_owner(folder)
    notes, broken = read_notes(folder)
    watcher = Watcher(folder, notes[-1].slurm_conf if notes else None, notes, broken)
    trouble, asked_at = None, datetime.now(UTC)
    try:
        # without a note nothing was ever submitted
        cells = (watcher.look if notes else watcher.look_at_files)(wanted.configs)
    except SlurmError as error:
        at = asked_at.astimezone()
        trouble = f"Slurm gave no answer at {at:%H:%M:%S} ({error}): this is what the files say"
        cells = watcher.look_at_files(wanted.configs)
    away = sorted({cell.elsewhere for cell in cells if cell.elsewhere})[:MAX_REMARKS]
    for remark in (*watcher.broken.values(), *away):
        say(remark)
    console = Console()
    if for_programs:
        print(json.dumps(as_json(wanted.name, cells, asked_at, trouble), indent=1))
    elif console.is_terminal:
        width, height = console.width, console.height
        console.print(table(cells, trouble, sweep=wanted.asked, width=width, height=height))
    else:
        for text in lines(cells, trouble, sweep=wanted.asked):
            print(text)
    return EXIT_UNDECIDED if trouble else 0


def as_json(
    sweep: str, cells: Sequence[CellState], asked_at: datetime, trouble: str | None
) -> dict[str, Any]:
    """For programs. ``trouble``: why Slurm gave no answer; then only files were looked at."""
    return {
        "schema_version": 1,
        "sweep": sweep,
        "asked_at": asked_at.isoformat(),
        "slurm_answered": trouble is None,
        "trouble": trouble,
        "counts": dict(Counter(cell.state for cell in cells)),
        "cells": [_cell_as_json(cell) for cell in cells],
    }


def _cell_as_json(cell: CellState) -> dict[str, Any]:
    """None: not known, or there is nothing to know yet."""
    last = cell.last_epoch()
    return {
        "cell": cell.name,
        "ranks": cell.config.gpus,
        "state": cell.state,
        "why": cell.why,
        "job": cell.job,
        "slurm": cell.slurm,
        "nodes": cell.nodes,
        "expected_start": cell.expected_start,
        "seconds": cell.seconds(),
        "epoch": last.epoch if last else 0,
        "epochs": epochs_to_train(cell.config),
        "train_loss": last.train_loss if last else None,
        "validation_accuracy": last.validation_accuracy if last else None,
        "images_per_s": last.images / last.train_s if last and last.train_s > 0 else None,
        "phase": cell.phase() or None,
        "log": str(cell.log) if cell.log else None,
        "cause": cell.cause,
    }


def cancel_jobs(wanted: Sweep, folder: Path) -> int:
    """End all jobs of the sweep: running cells leave their own records, waiting ones get theirs.

    What is in the queue is cancelled before any record is read, and a make sweep that waits for
    room submits nothing more.

    Raises:
        ConfigError: nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    become_owner(folder)
    notes, broken = read_notes(folder)
    if not notes and not broken:
        raise ConfigError(f"{folder} holds no note of a submission: nothing to cancel")
    conf = notes[-1].slurm_conf if notes else os.environ.get("SLURM_CONF")
    try:
        announce_cancel(folder)
    except OSError as error:
        say(f"{error}: stop a make sweep that still runs, too, or it submits more")
    ended: dict[str, int] = {}
    waited: set[str] = set()
    try:
        history = History(conf)
        away = {note.run: why for note in notes if (why := elsewhere(note, history))}
        for _ in range(TURNS):
            queue = query(conf, patience_s=30)
            here = [adopt(note, queue) for note in notes if note.run not in away]
            alive = jobs_of_sweep(here, broken, queue)
            waited |= {name for name, job in queue.items() if job.waits and job.array in alive}
            answer = cancel(alive, conf)
            if answer.code:
                raise NoAnswer(f"scancel refused: {answer.words}")
            ended = alive | ended
            time.sleep(AGAIN_S)  # what was just being submitted is in the queue then
            notes, _ = read_notes(folder)
    except SlurmError as error:
        raise NoAnswer(f"{error}: some jobs may have been cancelled; make cancel again") from error
    for why in dict.fromkeys(away.values()):
        say(f"not cancelled: {why}")
    count = sum(ended.values())
    say(f"{count} jobs were told to end" if count else "no job of this sweep is in the queue")
    if settled := _settle_waiting(wanted, folder, here, waited):
        say(f"{settled} cells had not begun; make sweep submits them again")
    return 0


def _settle_waiting(
    wanted: Sweep, folder: Path, notes: Sequence[RunNote], waited: Collection[str]
) -> int:
    """Records for cells whose jobs waited and were cancelled: none of their supervisors will ever
    run. One that goes on later keeps its record. Returns how many there are."""
    settled, why = 0, "make cancel, while it waited in the queue"
    submitted = submitted_cells(folder, notes)
    for config in wanted.configs:
        cell, job = folder / config.cell_id(), submitted.get(config.cell_id())
        if job is None or job.job not in waited:
            continue
        if recorded(config, cell).status in (NEW, BROKEN):
            settled += 1
            try:
                with hold(cell) as ours:
                    if ours:
                        settle_unstarted(cell, config, job.log, job.at, why, "cancelled")
            except OSError as error:  # one that cannot be written keeps no other from its record
                say(f"{cell.name}: {error}")
    return settled


def logs(wanted: Sweep, folder: Path, asked: str) -> int:
    """Print what is known of the last attempt of the cell that ``asked`` means."""
    become_owner(folder)
    name = find_cell(asked, [config.cell_id() for config in wanted.configs])
    job = submitted_cells(folder, read_notes(folder)[0]).get(name)
    for line in show(folder / name, job.log if job else None):
        print(line)
    return 0


def preflight(request: SweepRequest, nodes: int | None) -> int:
    """Submit the preflight job alone and wait for its report; exit code 0, 1, or 3 without one.

    ``nodes``: on how many; None: on two at most.

    Raises:
        ConfigError: the cluster cannot run it.
        NoAnswer: Slurm does not answer.
    """
    enter(request)
    request.folder.mkdir(parents=True, exist_ok=True)
    context = prepare(request)
    shape = preflight_layout(arrays_of(request.wanted.configs, context.site))
    if nodes is not None:
        shape = NodeLayout(nodes, context.site.ranks_per_node)
    with slurm_refusals(request.site):
        context = check_cluster(request, context, [preflight_array(context, shape)], {})
        job, folder = submit_preflight(context, shape)
        say(f"preflight: job {job} on {shape}")
        wait_for(job, context.site.slurm_conf, "preflight", context.site.poll_s)
    report = read_preflight(folder)
    if report is None:
        text = end_of(job, context.site.slurm_conf)
        say(f"the preflight left no report ({text}); see {folder}")
        return EXIT_UNDECIDED
    for problem in report.problems:
        say(f"preflight: {problem}")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    verdict = "passed" if report.ok else "failed"
    say(f"preflight: {verdict}: {', '.join(report.nodes)} ({versions})")
    return 0 if report.ok else EXIT_CELL_FAILED
