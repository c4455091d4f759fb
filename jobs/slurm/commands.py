"""`make status`, `make cancel`, `make logs` and `make preflight`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from jobs.cell.lock import hold
from jobs.cell.missing_record import settle_unstarted
from jobs.cell.state import Standing, recorded
from jobs.config.sweep import Sweep
from jobs.display import of_all
from jobs.messages import EXIT_CELL_FAILED, EXIT_UNDECIDED, NoAnswer, say
from jobs.slurm import board
from jobs.slurm.arrays import NodeLayout
from jobs.slurm.cancel import announce_cancel, cancel, jobs_of_sweep
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query
from jobs.slurm.client.user import become_owner
from jobs.slurm.job.step_ranks import SRUN_LOG
from jobs.slurm.job.task import read_preflight
from jobs.slurm.preflight import (
    preflight_array,
    preflight_shape,
    submit_preflight,
)
from jobs.slurm.reconcile import elsewhere, end_of
from jobs.slurm.status import Look, as_json, look, read_life, survey_slurm
from jobs.slurm.submissions import (
    SUBMITIT,
    RunNote,
    Submitted,
    adopt,
    log_name,
    read_notes,
    submitted_cells,
)
from jobs.slurm.submit import plan_arrays
from jobs.slurm.sweep import SweepRequest, check_cluster, enter, prepare, ready, slurm_refusals
from jobs.slurm.watch import wait_for
from train.config.plan import epochs_to_train
from train.errors import ConfigError, Unreadable
from train.record.cell_folder import read_failures, tail_of
from train.record.run import RECORD_NAME, NoRecord, RecordError, RunRecord, read_record

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


def preflight(wish: SweepRequest, nodes: int | None) -> int:
    """Submit the preflight job alone and wait for its report; exit code 0, 1, or 3 without one.

    ``nodes``: on how many; None: on two at most.

    Raises:
        ConfigError: the cluster cannot run it.
        NoAnswer: Slurm does not answer.
    """
    enter(wish)
    wish.folder.mkdir(parents=True, exist_ok=True)
    sending = prepare(wish)
    shape = preflight_shape(plan_arrays(sending, _all(wish)))
    if nodes is not None:
        shape = NodeLayout(nodes, sending.site.ranks_per_node)
    with slurm_refusals(wish.site):
        sending = ready(sending, check_cluster(wish, [preflight_array(sending.site, shape)], {}))
        job, folder = submit_preflight(sending, shape)
        say(f"preflight: job {job} on {shape}")
        wait_for(job, sending.site.slurm_conf, "preflight", sending.site.poll_s)
    report = read_preflight(folder)
    if report is None:
        text = end_of(job, sending.site.slurm_conf)
        say(f"the preflight left no report ({text}); see {folder}")
        return EXIT_UNDECIDED
    for problem in report.problems:
        say(f"preflight: {problem}")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    verdict = "passed" if report.ok else "failed"
    say(f"preflight: {verdict}: {', '.join(report.nodes)} ({versions})")
    return 0 if report.ok else EXIT_CELL_FAILED


def _all(wish: SweepRequest) -> Sequence[Standing]:
    return [recorded(config, wish.folder / config.cell_id()) for config in wish.wanted.configs]


MAX_NAMED = 12


def find_cell(asked: str, cells: Sequence[str]) -> str:
    """The one cell that is meant: its id, else the only one that begins with ``asked``, else the
    only one that has it anywhere.

    Raises:
        ConfigError: none, or several: the text names them.
    """
    if asked in cells:
        return asked
    if not asked:
        raise ConfigError(f"no cell was named, expected CELL=...: {_named(cells)}")
    for found in (
        [cell for cell in cells if cell.startswith(asked)],
        [cell for cell in cells if asked in cell],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            raise ConfigError(
                f"{len(found)} cells have {asked!r} in their names, expected a part that only one "
                f"has: {_named(found)}"
            )
    raise ConfigError(f"no cell has {asked!r} in its name; there are {_named(cells)}")


def show(cell: Path, log: Path | None = None, *, lines: int = 20) -> Iterator[str]:
    """What is known of a cell's last start, line by line, the first cause first.

    ``log``: of the supervisor of its last job; None: found by the job that its record names.
    ``lines``: of each log.
    """
    yield f"folder: {cell}"
    record = None
    try:
        record = read_record(cell / RECORD_NAME)
    except NoRecord:
        yield "record: none yet: it has not ended"
    except (RecordError, Unreadable) as error:
        yield f"record: {error}"
    if record is not None:
        yield from _of_record(record)
    log = log or _log_of(cell, record)
    if log is not None:
        yield from _log("supervisor", log, lines)
    yield from _log("srun", cell / "logs" / SRUN_LOG, lines)
    ranks = _ranks(cell)
    for rank in ranks:
        yield from _log(f"rank {rank}", cell / "logs" / f"rank-{rank}.log", lines)
    if not ranks:
        yield "ranks: none has written a log yet"


def _of_record(record: RunRecord) -> Iterator[str]:
    provenance = record.provenance
    job = provenance.slurm_job_id if provenance else None
    where = f" in Slurm job {job}" if job else ""
    planned = epochs_to_train(record.config, record.data.train_images if record.data else None)
    done = f"{of_all(len(record.epochs), planned)} epochs"
    start = f"start {len(record.attempts)}, {done}"
    yield f"record: {record.status} at {record.ended_at:%Y-%m-%d %H:%M:%S %Z}{where} ({start})"
    if record.error is not None:
        yield f"  what:  {record.error.what}"
        yield f"  where: {record.error.where}"
        yield f"  to do: {record.error.what_to_do}"


def _ranks(cell: Path) -> list[int]:
    """Those that have a log: the one that failed first by its own doing, then other failures,
    then the rest."""
    numbers = []
    with contextlib.suppress(OSError):
        for file in (cell / "logs").iterdir():
            if found := re.fullmatch(r"rank-(\d+)\.log", file.name):
                numbers.append(int(found[1]))
    # stable sorts: an own error before one that only says that a peer is gone, earliest first
    failures = sorted(read_failures(cell), key=lambda failure: failure.consequence)
    first = [failure.error.rank for failure in failures if failure.error.rank in numbers]
    order = [rank for rank in dict.fromkeys(first) if rank is not None]
    return [*order, *(rank for rank in sorted(numbers) if rank not in order)]


def _log(whose: str, file: Path, lines: int) -> Iterator[str]:
    if not file.exists():
        if whose == "supervisor":
            yield f"{whose}: {file} (not there yet: its job has not begun)"
        return
    tail = tail_of(file)[-lines:]
    yield f"{whose}: {file}" + ("" if tail else " (empty)")
    yield from (f"  | {text}" for text in tail)


def _log_of(cell: Path, record: RunRecord | None) -> Path | None:
    """The supervisor's log by the job's id in the record: there is one folder for each array."""
    job = record.provenance.slurm_job_id if record and record.provenance else None
    if not job or not re.fullmatch(r"\d+(_\d+)?", job):
        return None
    found = sorted((cell.parent / SUBMITIT).glob(f"*/{log_name(job)}"))
    return found[-1] if found else None


def _named(cells: Sequence[str]) -> str:
    shown = ", ".join(cells[:MAX_NAMED])
    more = f" and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else ""
    return f"{shown}{more}" if cells else "none"
