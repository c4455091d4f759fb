"""`make status`, `make cancel`, `make logs` and `make preflight`."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from jobs.cell.state import CellState, keep_networks
from jobs.config.site import NodeLayout
from jobs.config.sweep import Sweep
from jobs.logs import find_cell, show
from jobs.messages import EXIT_CELL_FAILED, EXIT_UNDECIDED, NoAnswer, say
from jobs.named import cells_in
from jobs.slurm.arrays import arrays_of
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.user import become_owner
from jobs.slurm.job.task import PREFLIGHT, read_preflight
from jobs.slurm.request import SweepRequest, check_cluster, prepare, slurm_refusals
from jobs.slurm.submissions import RunNote, read_notes, submitted_cells
from jobs.slurm.submit import submit_preflight
from jobs.slurm.watch.cancel import announce_cancel, cancel, jobs_of_sweep
from jobs.slurm.watch.endings import elsewhere, end_of, wait_for
from jobs.slurm.watch.preflight import preflight_layout
from jobs.slurm.watch.reconcile import Watcher, reconcile
from jobs.table import lines, table
from train.config.plan import epochs_to_train
from train.errors import ConfigError


def status(wanted: Sweep, folder: Path, *, for_programs: bool) -> int:
    """Print where every cell stands; exit code 3 where Slurm does not say."""
    watcher = Watcher(folder)
    trouble, asked_at = None, datetime.now(UTC)
    own = len(wanted.configs)
    configs = [*wanted.configs, *cells_in(folder, {c.cell_id() for c in wanted.configs})]
    try:
        # without a note nothing was ever submitted
        cells = (watcher.look if watcher.notes else watcher.look_at_files)(configs)
    except SlurmError as error:
        at = f"{asked_at:%H:%M:%S} UTC ({error})"
        trouble = f"Slurm gave no answer at {at}: this is what the files say"
        cells = watcher.look_at_files(configs)
    cells, others = cells[:own], [one for one in cells[own:] if one.done or one.alive or one.active]
    if others:
        counts = Counter(cell.state for cell in others)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        say(f"{len(others)} more cells, which the sweep file no longer asks for: {states}; "
            "make cancel ends their jobs, too")  # fmt: skip
    for remark in dict.fromkeys(cell.elsewhere for cell in cells if cell.elsewhere):
        say(remark)
    console = Console()
    if for_programs:
        counts = Counter(cell.state for cell in cells)
        answer = {
            "schema_version": 1,
            "sweep": wanted.name,
            "asked_at": asked_at.isoformat(),
            "slurm_answered": trouble is None,
            "trouble": trouble,
            "counts": dict(counts),
            "cells": [_cell_as_json(cell) for cell in cells],
        }
        print(json.dumps(answer, indent=1))
    elif console.is_terminal:
        console.print(table(cells, trouble, console, sweep=wanted.asked))
    else:
        print("\n".join(lines(cells, trouble, sweep=wanted.asked)))
    return EXIT_UNDECIDED if trouble else 0


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
        "expected_start": cell.expected_start.isoformat() if cell.expected_start else None,
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


def cancel_jobs(folder: Path) -> int:
    """End all jobs of the sweep: running cells leave their own records, waiting ones get theirs.
    The sweep's file may be another one by now, or broken.

    What is in the queue is cancelled before any record is read, and a make sweep that waits for
    room submits nothing more.

    Raises:
        ConfigError: nothing was submitted.
        NoAnswer: Slurm does not answer.
    """
    become_owner(folder)
    watcher = Watcher(folder)
    if not watcher.notes:
        raise ConfigError(f"{folder} holds no note of a submission: nothing to cancel")
    try:
        announce_cancel(folder)
    except OSError as error:
        say(f"{error}: stop a make sweep that still runs, too, or it submits more")
    try:
        watcher.ask(patience_s=30)
        away = {note.run: elsewhere(folder, note, watcher.history) for note in watcher.notes}
        ended = jobs_of_sweep((note for note in watcher.notes if not away[note.run]), watcher.queue)
        if complaint := cancel(ended):
            raise NoAnswer(f"scancel refused: {complaint}")
    except SlurmError as error:
        raise NoAnswer(f"{error}: some jobs may have been cancelled; make cancel again") from error
    if count := sum(ended.values()):
        say(f"{count} jobs were told to end")
    # what waited never begins, and has its record at once: without accounting Slurm forgets it
    over = {
        name: replace(job, state="CANCELLED", nodes="")
        for name, job in watcher.queue.items()
        if job.waits and job.array in ended
    }
    known: set[str] = set()
    with suppress(SlurmError, OSError):  # else the next look gives it
        submitted = submitted_cells(folder, watcher.notes)
        queue = {**watcher.queue, **over}
        cells = reconcile(cells_in(folder), folder, submitted, queue, watcher.history, {})
        known = {cell.name for cell in cells if not cell.elsewhere}
    if any(not array.job_id for note in watcher.notes if note.is_recent for array in note.arrays):
        raise NoAnswer(
            "a call of sbatch some minutes ago was not confirmed, and its job may still come into "
            "the queue: make cancel again in some minutes"
        )

    def is_over(note: RunNote) -> bool:
        if note.kind == PREFLIGHT:
            return read_preflight(folder.parent / PREFLIGHT / note.run) is not None
        return all(known.issuperset(array.cells) for array in note.arrays)

    left = [away[note.run] for note in watcher.notes if away[note.run] and not is_over(note)]
    for why in dict.fromkeys(left):
        say(f"not cancelled: {why}")
    if left:
        raise NoAnswer("jobs of this sweep may still wait or run")
    if not count:
        say("no job of this sweep is in the queue")
    return 0


def logs(wanted: Sweep, folder: Path, asked: str) -> int:
    """Print what is known of the last attempt of the cell that ``asked`` means."""
    cells = [config.cell_id() for config in wanted.configs]
    if not any(asked in cell for cell in cells):  # maybe of an earlier form of the sweep file
        cells += [config.cell_id() for config in cells_in(folder, cells)]
    name = find_cell(asked, cells)
    job = submitted_cells(folder, read_notes(folder)).get(name)
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
    context = prepare(request)
    request.folder.mkdir(parents=True, exist_ok=True)
    keep_networks(request.wanted, request.folder)
    shape = preflight_layout(arrays_of(request.wanted.configs, context.site))
    if nodes is not None:
        shape = NodeLayout(nodes, context.site.ranks_per_node)
    with slurm_refusals(request.site):
        context = check_cluster(request, context)
        job, folder = submit_preflight(context, shape)
        say(f"preflight: job {job} on {shape}")
        wait_for(job, context.site, "preflight")
    report = read_preflight(folder)
    if report is None:
        say(f"the preflight left no report ({end_of(job, request.folder)}); see {folder}")
        return EXIT_UNDECIDED
    for problem in report.problems:
        say(f"preflight: {problem}")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    verdict = "passed" if report.ok else "failed"
    say(f"preflight: {verdict}: {', '.join(report.nodes)} ({versions})")
    return 0 if report.ok else EXIT_CELL_FAILED
