"""`make status`, `make cancel`, `make logs` and `make preflight`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from jobs.ledger import Standing, recorded
from jobs.lock import hold
from jobs.options import EXIT_CELL_FAILED, EXIT_UNDECIDED, NoAnswer, say
from jobs.settle import settle_unstarted
from jobs.slurm import board
from jobs.slurm.absent import elsewhere
from jobs.slurm.cancel import announce_cancel, cancel, jobs_of_sweep
from jobs.slurm.commands import SlurmError
from jobs.slurm.follow import wait_for
from jobs.slurm.gate import largest, preflight_array, preflight_task, submit_preflight
from jobs.slurm.history import History
from jobs.slurm.inventory import end_of
from jobs.slurm.logs import find_cell, show
from jobs.slurm.look import Look, look
from jobs.slurm.notes import RunNote, Submitted, adopt, read_notes, submitted_cells
from jobs.slurm.preflight import read_preflight
from jobs.slurm.program import Wish, check, enter, prepare, ready, slurm_refusals
from jobs.slurm.queue import JobState, query
from jobs.slurm.send import plan_arrays
from jobs.slurm.shape import Shape
from jobs.slurm.status import as_json, read_life, survey_slurm
from jobs.slurm.where import become_owner
from jobs.sweep import Sweep
from train.errors import ConfigError

OTHER_LINES = 16
#: make cancel looks again for what a make sweep was submitting meanwhile.
TURNS, AGAIN_S = 3, 1.0


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
            shown = board.table(
                found.states, found.trouble, rows, width=console.width, sweep=wanted.asked
            )
            console.print(shown)
        else:
            rows = len(found.states)
            for line in board.lines(found.states, found.trouble, rows, sweep=wanted.asked):
                print(line)
    return EXIT_UNDECIDED if found.trouble else 0


def _look(wanted: Sweep, folder: Path) -> Look:
    """Without a note nothing was ever submitted, and Slurm is not asked."""
    configs = wanted.configs
    notes, broken = read_notes(folder)
    if not notes:
        cells = [recorded(config, folder / config.cell_id()) for config in configs]
        states = survey_slurm([(cell, read_life(cell)) for cell in cells], {}, (), {})
        return Look(states, datetime.now(UTC), None, tuple(broken.values()))
    return look(configs, folder, History(notes[-1].slurm_conf))


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
    before: Mapping[str, JobState] = {}
    try:
        history = History(conf)
        away = {note.run: why for note in notes if (why := elsewhere(note, history))}
        for _ in range(TURNS):
            queue = query(conf, patience_s=30)
            before = before or queue
            here = [adopt(note, queue) for note in notes if note.run not in away]
            found = jobs_of_sweep(here, broken, queue)
            answer = cancel(found, conf)
            if answer.code:
                raise NoAnswer(f"scancel refused: {answer.words}")
            ended = found | ended
            time.sleep(AGAIN_S)  # what was just being submitted is in the queue then
            notes, _ = read_notes(folder)
    except SlurmError as error:
        raise NoAnswer(f"{error}: some jobs may have been cancelled; make cancel again") from error
    for why in dict.fromkeys(away.values()):
        say(f"not cancelled: {why}")
    count = sum(ended.values())
    say(f"{count} jobs were told to end" if count else "no job of this sweep is in the queue")
    waited = {name for name, job in before.items() if job.waits and job.array in ended}
    if settled := _settle_waiting(wanted, folder, here, waited):
        say(f"{settled} cells had not begun; make sweep submits them again")
    return 0


def _settle_waiting(
    wanted: Sweep, folder: Path, notes: Sequence[RunNote], waited: Collection[str]
) -> int:
    """Records for cells whose jobs waited and were cancelled: none of their supervisors will ever
    run. One that goes on later keeps its record. Returns how many there are."""
    count = 0
    submitted = submitted_cells(folder, notes)
    for config in wanted.configs:
        told = submitted.get(config.cell_id())
        if told is None or told.job not in waited:
            continue
        try:
            count += _settle(recorded(config, folder / config.cell_id()), told)
        except OSError as error:  # one that cannot be written keeps no other from its record
            say(f"{config.cell_id()}: {error}")
    return count


def _settle(cell: Standing, told: Submitted) -> bool:
    if cell.status not in ("new", "broken record"):
        return False
    with hold(cell.folder) as ours:
        if ours:
            settle_unstarted(
                cell.folder, cell.config, told.log, told.at,
                "make cancel, while it waited in the queue", "cancelled",
            )  # fmt: skip
    return True


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
    with slurm_refusals(wish.site):
        sending = ready(sending, check(wish, [preflight_array(sending, shape)], {}))
        task = preflight_task(sending, shape, datetime.now(UTC))
        job = submit_preflight(sending, task)
        say(f"preflight: job {job} on {shape}")
        wait_for(job, sending.site.slurm_conf, "preflight", sending.site.poll_s)
    report = read_preflight(Path(task.folder))
    if report is None:
        text = end_of(job, sending.site.slurm_conf)
        say(f"the preflight left no report ({text}); see {task.folder}")
        return EXIT_UNDECIDED
    for problem in report.problems:
        say(f"preflight: {problem}")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    verdict = "passed" if report.ok else "failed"
    say(f"preflight: {verdict}: {', '.join(report.nodes)} ({versions})")
    return 0 if report.ok else EXIT_CELL_FAILED


def _all(wish: Wish) -> Sequence[Standing]:
    return [recorded(config, wish.folder / config.cell_id()) for config in wish.wanted.configs]
