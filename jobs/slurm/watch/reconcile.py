"""Where each cell of a sweep stands on Slurm: by its record, its job, and what Slurm says of jobs
that are gone. Cells whose job ended without a record get one here.

Absence proves nothing: a list that lacks a job, a file that is not seen, a program that does not
answer. A job is lost only when Slurm, asked by its id on the cluster where it was submitted, says
that it ended, or no longer knows it and its files are ten minutes old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from jobs.cell.missing_record import ATTEMPT_NAME, over, settle_lost, settle_unstarted
from jobs.cell.state import (
    ENDING,
    NEW,
    NOT_SUBMITTED,
    OTHERS,
    RUNNING,
    STARTING,
    UNKNOWN,
    UNREADABLE,
    WAITING,
    CellState,
    left_alone,
    recorded,
)
from jobs.config.site import Site
from jobs.messages import seconds_of
from jobs.slurm.client.reasons import in_words
from jobs.slurm.client.run import are_several, ask_cluster
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import JobState, query
from jobs.slurm.script import TASKS_NAME
from jobs.slurm.submissions import (
    ANY,
    CLOCKS_DIFFER,
    RunNote,
    Submitted,
    adopt,
    listed_as,
    read_notes,
    submitted_cells,
    write_note,
)
from jobs.slurm.watch.endings import End, elsewhere, ends_of
from train.config.run import RunConfig
from train.record.atomic import forget_absent
from train.record.cell_folder import file_mark
from train.record.lock import hold, is_abandoned
from train.record.run import RECORD_NAME, Status


def reconcile(
    configs: Sequence[RunConfig],
    sweep: Path,
    submitted: Mapping[str, Submitted],
    queue: Mapping[str, JobState],
    history: History,
    seen: dict[str, tuple[object, CellState]],
) -> list[CellState]:
    """Look at every cell once; ask Slurm by id about jobs that left no record and are not in
    ``queue``, or ended there.

    ``seen``: what earlier looks read, by cell. A cell whose job waits as it did then, or runs and
    has left its files as they were, is not read again.

    The queue has to be asked after the notes were read and before the cells' folders: so a job that
    is noted and not in it is over, and a record that a job left is seen.

    Raises:
        SlurmError: no answer about a job that is gone.
    """
    cells: list[CellState] = []
    unsettled: dict[int, Submitted] = {}  # index of the cell -> its job
    for config in configs:
        folder = sweep / config.cell_id()
        job = submitted.get(folder.name)
        if job is None:
            cells.append(by_files(recorded(config, folder)))
            continue
        listed = listed_as(job, queue)
        mark = _mark(folder, listed)
        before, cell = seen.get(folder.name, (None, None))
        if cell is None or mark is None or mark != before:
            cell = recorded(config, folder)
            seen[folder.name] = None if cell.status == UNREADABLE else mark, cell
        if listed is None or listed.ended:
            if not (cell.done and _has_record_of(cell, job)):
                for part in (folder, folder / "logs"):
                    with suppress(OSError):  # network file systems look again for what is in it
                        next(part.iterdir(), None)
                cell = recorded(config, folder)
            job = _acting(cell, job)
            listed = listed_as(job, queue)
        if (listed and not listed.ended) or not left_no_record(cell, job):
            cell = queued(cell, job, listed)
        elif why := "" if listed else elsewhere(sweep, job, history):
            cell = of_job(cell, job, alive=True, doing=UNKNOWN, why=why, cause="", elsewhere=why)
        else:
            unsettled[len(cells)] = job
        cells.append(cell)
    ends = ends_of(set(unsettled.values()), sweep, queue, history)
    for index, job in unsettled.items():
        cells[index] = _by_end(cells[index], job, ends[job], history)
    return cells


def _mark(cell: Path, listed: JobState | None) -> object:
    """Differs as soon as the cell has to be read; None: at every look."""
    if listed is None or listed.ended:
        return None
    files = () if listed.waits else (RECORD_NAME, f"logs/{ATTEMPT_NAME}")
    requeued = listed.reason == "BeginTime"  # it may have run; Slurm lets it wait two minutes
    return listed.job, listed.state, requeued, [file_mark(cell / name) for name in files]


def _acting(cell: CellState, last: Submitted) -> Submitted:
    """The job that runs the cell: an earlier one, where the last one found that still at work."""
    if cell.attempt is None or cell.attempt.job in (None, last.job):
        return last
    return replace(last, job=str(cell.attempt.job), run=ANY, part=ANY)


def left_no_record(cell: CellState, job: Submitted) -> bool:
    """Whether the job has left this cell without a record of its own, as far as its files can be
    read."""
    if cell.attempt is not None or cell.status == NEW:
        return True
    if cell.ended_at is None or cell.done:
        return False
    # nodes' clocks may be behind: a record that is hardly older is taken for this job's, as is one
    # that the file server has got since the job was submitted
    with suppress(OSError):
        submitted_at = (job.log.parent / TASKS_NAME).stat().st_mtime
        if (cell.folder / RECORD_NAME).stat().st_mtime > submitted_at:
            return False
    return cell.ended_at < job.at - CLOCKS_DIFFER


def _by_end(cell: CellState, job: Submitted, end: End, history: History) -> CellState:
    """A cell that its job left without a record."""
    if end.ending is not None and not end.ending.ended and not end.settle:
        return queued(cell, job, end.ending)
    try:
        if end.unseen:
            raise end.unseen
        if end.settle and (settled := settle(cell, job, end, history)):
            return of_job(settled, job)
    except OSError as error:
        return of_job(left_alone(cell.config, cell.folder, error), job)
    why = "its job is gone; waiting for what it left to be seen"
    return of_job(cell, job, alive=True, doing=ENDING, why=why, cause="")


def settle(cell: CellState, job: Submitted, end: End, history: History) -> CellState | None:
    """The cell with a record of its job, given here unless there is one; None while its supervisor
    still holds it, or a record is there that is not seen yet.

    Raises:
        SlurmError: no answer about another job that signed for the cell.
        OSError: a file cannot be read or written now, or somebody may still run the cell.
    """
    config, folder = cell.config, cell.folder

    def ended(signer: str) -> bool:
        known = history.endings((), [signer]).get(signer) if signer != job.job else None
        return known is None or known.ended  # one that Slurm has forgotten: the files are old

    folder.mkdir(parents=True, exist_ok=True)
    with hold(folder, ended=ended) as ours:
        if not ours:
            return None
        forget_absent(folder)
        forget_absent(folder / "logs")
        now = recorded(config, folder)
        if now.status in (UNREADABLE, OTHERS):
            return now
        held = end.preflight if now.attempt is None else ""
        status: Status = "cancelled" if held else end.status
        if now.done:  # its supervisor was ended between the record and the last clean-up
            over(folder)
        elif not settle_lost(folder, config, end.why, status) and left_no_record(now, job):
            what = held or f"no rank was started: {end.why}"
            settle_unstarted(folder, config, job.log, job.at, what, status)
    now = recorded(config, folder)
    return None if now.status == NEW else now


def by_files(cell: CellState, job: Submitted | None = None) -> CellState:
    """A cell that was never submitted; with ``job`` one of which Slurm gives no answer."""
    if cell.attempt is not None and cell.attempt.job is None and is_abandoned(cell.folder):
        if not (cell.done or cell.status in (UNREADABLE, OTHERS)):
            why = "its make sweep was killed: the next one gives it its record"
            cell = replace(cell, doing="lost", why=why, cause="")
    elif cell.attempt is not None:
        began_at = cell.attempt.started_at
        cell = replace(cell, doing=RUNNING, why="as its files say", cause="", began_at=began_at)
    elif job is not None and not _has_record_of(cell, job):
        cell = replace(cell, doing=UNKNOWN, why="it was submitted", cause="")
    elif cell.status == NEW:
        cell = replace(cell, doing=NOT_SUBMITTED, why="")
    return cell if job is None else of_job(cell, job)


def of_job(cell: CellState, job: Submitted, **changes: Any) -> CellState:
    """A cell that was given to a job; without ``changes`` it is as its record says."""
    return replace(cell, job=job.job, log=job.log, **changes)


def queued(cell: CellState, job: Submitted, state: JobState | None) -> CellState:
    """A cell with a record of its job, or whose job is alive."""
    if state is None or state.ended or (cell.done and _has_record_of(cell, job)):
        # a controller that was restarted may learn late that a cell is done
        return of_job(cell, job)
    attempt, began_at, starts = cell.attempt, None, None
    doing, why = STARTING, in_words(state)
    if state.waits:
        last = replace(cell, doing=WAITING).last_epoch()
        again = f"goes on after epoch {last.epoch}; " if last else ""
        doing, why, starts = WAITING, again + (why or "Slurm gives no reason yet"), state.start
    elif attempt is not None and attempt.job in (None, state.job):
        doing, began_at = RUNNING, attempt.started_at
    elif state.start and cell.ended_at and cell.ended_at >= state.start:
        doing, why = "", cell.why  # the record is not of a start before a requeue
    elif state.state in ("COMPLETING", "STAGE_OUT"):
        doing = ENDING
    elif (ran_s := seconds_of(state.elapsed)) is not None:
        began_at = datetime.now(UTC) - timedelta(seconds=ran_s)
    return of_job(
        cell, job, alive=True, doing=doing, why=why, cause="" if doing else cell.cause,
        slurm=state.state, nodes=state.nodes or None, expected_start=starts, began_at=began_at,
    )  # fmt: skip


def _has_record_of(cell: CellState, job: Submitted) -> bool:
    """Whether the cell's record is of this job; not so that of a cell that is run by force, before
    it is put aside."""
    return cell.ended_at is not None and cell.ended_at >= job.at


class Watcher:
    """A sweep on a cluster as seen from the login node, and what the last look showed."""

    def __init__(self, sweep: Path, site: Site | None = None) -> None:
        """``site``: where it runs; None: where its last jobs were submitted.

        Raises:
            OSError: the notes cannot be read.
        """
        self.sweep = sweep
        self._notes: dict[object, RunNote] = {}
        self.notes = read_notes(sweep, self._notes)
        if site is None and self.notes:
            last = self.notes[-1]
            # an earlier version let sbatch choose
            several = are_several(last.clusters or "")
            ask_cluster(last.cluster if several else last.clusters, last.slurm_conf)
        self.queue: Mapping[str, JobState] = {}
        self.history = History()
        self._seen: dict[str, tuple[object, CellState]] = {}

    def look(self, configs: Sequence[RunConfig], *, patience_s: float = 0) -> list[CellState]:
        """Where the cells stand; those whose job has been over for long enough get their records.

        Raises:
            SlurmError: no answer.
            OSError: the notes cannot be read.
        """
        self.ask(patience_s=patience_s)
        submitted = submitted_cells(self.sweep, self.notes)
        return reconcile(configs, self.sweep, submitted, self.queue, self.history, self._seen)

    def ask(self, *, patience_s: float = 0) -> None:
        """What was submitted, and then what is in the queue: what another shell submits in between
        is in neither.

        Raises:
            SlurmError: no answer.
            OSError: the notes cannot be read.
        """
        self.notes = read_notes(self.sweep, self._notes)
        self.queue = query(patience_s=patience_s)
        for index, note in enumerate(self.notes):
            self.notes[index] = adopted = adopt(note, self.queue)
            if adopted != note:
                with suppress(OSError):  # the next look finds the ids in the queue, too
                    write_note(self.sweep, adopted)

    def look_at_files(self, configs: Sequence[RunConfig]) -> list[CellState]:
        """The same while Slurm gives no answer, or where nothing was submitted."""
        submitted = submitted_cells(self.sweep, self.notes)
        cells = [recorded(config, self.sweep / config.cell_id()) for config in configs]
        return [by_files(cell, submitted.get(cell.name)) for cell in cells]
