"""Cells from disk, one after the other; many of them by several processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

from analysis.records.gather import Cell, Gathered, Problem, gather, together
from analysis.records.validate import rejections
from train.errors import Unreadable
from train.record.cell_folder import read_epochs
from train.record.run import GOOD, RECORD_NAME, NoRecord, RecordError, RunRecord, read_record

#: Cells that one process reads at a time, and from how many on a second process is worth its start.
_CHUNK, _FEW = 200, 400
_MOST_PROCESSES = 8


def read_cells(folder: Path, cells: Sequence[str]) -> Gathered:
    """Tables of these cells of a sweep, whose records are dropped as soon as they are taken apart.

    Two processes read 10,000 records in half the time of one.
    """
    chunks = [cells[first : first + _CHUNK] for first in range(0, len(cells), _CHUNK)] or [()]
    read = partial(_read_chunk, folder)
    processes = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    if len(cells) > _FEW and processes > 1:
        try:
            # a fork needs no main module that can be imported again, which notebooks do not have
            forked = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(processes, mp_context=forked) as pool:
                return together(list(pool.map(read, chunks)))
        except (BrokenProcessPool, OSError):
            pass  # no memory or no right for more processes: this one can do it, too
    return together([read(chunk) for chunk in chunks])


def _read_chunk(folder: Path, cells: Sequence[str]) -> Gathered:
    return gather(read_cell(folder, cell) for cell in cells)


def read_cell(folder: Path, cell_id: str) -> Cell:
    """What is found of one planned cell."""
    path = folder / cell_id / RECORD_NAME
    try:
        record = read_record(path)
    except NoRecord:
        epochs = read_epochs(path.parent)
        return Cell(cell_id, None, _missing(path.parent, cell_id, len(epochs)), epochs)
    except (RecordError, Unreadable) as error:
        # the reader names the whole path; the table already names the cell
        reason = str(error).removeprefix(f"{path}: ")
        where, what_to_do = (
            f"{cell_id}/{RECORD_NAME}",
            "move it away, then make sweep runs it again",
        )
        if isinstance(error, Unreadable):
            what_to_do = "make it readable: make sweep leaves it alone until then"
        problem = Problem(cell_id, "unreadable", "none", reason, where, what_to_do)
        return Cell(cell_id, None, problem, read_epochs(path.parent))
    # a record of another cell says nothing of this one's config, and what it took was not spent here
    own = record if record.cell_id == cell_id else None
    if record.status not in GOOD:
        return Cell(cell_id, own, _failed(record, cell_id))
    if reasons := rejections(record, cell_id):
        todo = "see its logs/; once its folder is moved away, make sweep runs it again"
        found = Problem(cell_id, "rejected", record.status, "; ".join(reasons), what_to_do=todo)
        return Cell(cell_id, own, found)
    return Cell(cell_id, record, None)


def _missing(cell: Path, cell_id: str, epochs: int) -> Problem:
    reason = "no record yet (waiting in the queue, running its first epoch, or killed)"
    if epochs:
        reason = f"no record yet; epochs.jsonl shows {epochs} finished epochs (still running?)"
    if not cell.is_dir():
        reason = "never started: it has no folder"
    return Problem(cell_id, "missing", "none", reason, what_to_do="make status, then make sweep")


def _failed(record: RunRecord, cell_id: str) -> Problem:
    error = record.error
    assert error is not None, "the contract asks for an error with this status"
    return Problem(
        cell_id,
        "failed",
        record.status,
        error.what,
        where=error.where,
        what_to_do=error.what_to_do,
        rank=error.rank,
        log_tail=error.log_tail,
        hosts=tuple(dict.fromkeys(record.world.hostnames)) if record.world else (),
    )
