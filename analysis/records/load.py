"""One sweep's folder as frames: what may be used, and why every other planned cell may not.

Records are read one after the other; many of them by several processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from analysis import fmt
from analysis.records import cache as on_disk
from analysis.records.columns import PLANNED
from analysis.records.frames import Frames, frames_of, labelled
from analysis.records.gather import (
    Gathered,
    Problem,
    Unusable,
    gather,
    of_cells,
    problems_in,
)
from analysis.records.labels import SETTINGS, parsed_settings
from analysis.records.validate import rejections
from analysis.table import types
from train.config.run import RunConfig, explain, load_config
from train.errors import ConfigError, NoRecord, RecordError, Unreadable
from train.record.cell_folder import CONFIG_NAME, read_epochs
from train.record.run import GOOD, MANIFEST_NAME, RECORD_NAME, RunRecord, SweepManifest, read_record

#: Cells that one process reads at a time, and from how many on a second process is worth its start.
_CHUNK, _FEW = 200, 400
_MOST_PROCESSES = 8


class SweepError(ValueError):
    """There is no sweep to report on; the text says what was found, expected and what to do."""


def load_frames(folder: str | os.PathLike[str], cache: bool = True) -> Frames:
    """Read results/<sweep>/ into frames, record by record.

    ``cache``: of many records, take from RESULTS_DIR/report/.cache what was read before, and keep
    there what is read now. A record that changed since is read again.

    Raises:
        SweepError: the folder or its sweep.json is missing or broken.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    cells = tuple(dict.fromkeys(manifest.cells))
    tables = _tables(folder, cells, cache=cache)
    settings = parsed_settings(tables["cells"])
    found = tables["cells"] = labelled(tables["cells"], settings)
    state = found["kind"].fillna("usable")
    planned = found.assign(state=state, known=found[SETTINGS].notna())
    order = [*manifest.techniques]
    order += sorted(set(found["technique"][state == "usable"]) - set(order))
    return Frames(
        folder=folder,
        name=manifest.name,
        title=manifest.title,
        techniques=tuple(order),
        planned=planned[list(types(PLANNED))].astype(types(PLANNED)),
        problems=tuple(problems_in(found)),
        unplanned=_unplanned(folder, cells),
        settings=settings,
        sites=_sites(folder),
        **frames_of(tables),
    )


def _tables(folder: Path, cells: tuple[str, ...], *, cache: bool) -> Gathered:
    """Of these cells, in their order."""
    if not cache or len(cells) < on_disk.WORTH_IT:
        return read_cells(folder, cells)
    stamps = on_disk.stamps(folder, cells)
    known = on_disk.load(folder, stamps)
    there = set(known["cells"]["cell_id"])
    left = [cell for cell in cells if cell not in there]
    tables = of_cells(cells, [known, read_cells(folder, left)])
    if left:
        on_disk.store(folder, stamps, tables)
    return tables


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
                return of_cells(cells, list(pool.map(read, chunks)))
        except (BrokenProcessPool, OSError):
            pass  # no memory or no right for more processes: this one can do it, too
    return of_cells(cells, [read(chunk) for chunk in chunks])


def _read_chunk(folder: Path, cells: Sequence[str]) -> Gathered:
    return gather(read_cell(folder, cell) for cell in cells)


def read_cell(folder: Path, cell_id: str) -> RunRecord | Unusable:
    """The record of a planned cell, or why it is of no use."""
    path = folder / cell_id / RECORD_NAME
    try:
        record = read_record(path)
    except NoRecord:
        epochs = read_epochs(path.parent)
        return Unusable(_missing(path.parent, len(epochs)), _planned_config(path.parent), epochs)
    except (RecordError, Unreadable) as error:
        # the reader names the whole path; the table already names the cell
        reason = str(error).removeprefix(f"{path}: ")
        todo = "move it away, then make sweep runs it again"
        if isinstance(error, Unreadable):
            todo = "make it readable: make sweep leaves it alone until then"
        problem = Problem(cell_id, "unreadable", "none", reason, f"{cell_id}/{RECORD_NAME}", todo)
        return Unusable(problem, _planned_config(path.parent), read_epochs(path.parent))
    config: RunConfig | None = record.config
    if record.cell_id != cell_id:
        # it says nothing of this cell, and what it took was not spent here
        reasons: tuple[str, ...] = (f"the record belongs to cell {record.cell_id}",)
        config = _planned_config(path.parent)
    elif record.status not in GOOD:
        return Unusable(_failed(record), config, record.epochs)
    elif not (reasons := rejections(record)):
        return record
    # what a rejected record says of its epochs may be false
    todo = "see its logs/; once its folder is moved away, make sweep runs it again"
    found = Problem(cell_id, "rejected", record.status, "; ".join(reasons), what_to_do=todo)
    return Unusable(found, config)


def _missing(cell: Path, epochs: int) -> Problem:
    reason = "no record yet (waiting in the queue, running its first epoch, or killed)"
    if epochs:
        ended = fmt.counted(epochs, "finished epoch")
        reason = f"no record yet; epochs.jsonl shows {ended} (still running?)"
    if not cell.is_dir():
        reason = "never started: it has no folder"
    return Problem(cell.name, "missing", "none", reason, what_to_do="make status, then make sweep")


def _failed(record: RunRecord) -> Problem:
    error = record.error
    assert error is not None, "the contract asks for an error with this status"
    return Problem(
        record.cell_id,
        "failed",
        record.status,
        error.what,
        where=error.where,
        what_to_do=error.what_to_do,
        rank=error.rank,
        log_tail=error.log_tail,
        hosts=tuple(dict.fromkeys(record.world.hostnames)) if record.world else (),
    )


def _planned_config(cell: Path) -> RunConfig | None:
    """The config of a cell's folder, where it can be read and is of this cell."""
    try:
        config = load_config(cell / CONFIG_NAME)
    except (ConfigError, Unreadable):
        return None
    return config if config.cell_id() == cell.name else None


class _Note(BaseModel):
    """Of .slurm/RUN.json, which each `make sweep` on a cluster writes, what is needed here."""

    schema_version: Literal[1]
    site: str


def _sites(folder: Path) -> tuple[str, ...]:
    """What the sweep was submitted to; notes that cannot be read are left out."""
    found = []
    for file in sorted((folder / ".slurm").glob("[!.]*.json")):
        with contextlib.suppress(OSError, ValidationError):
            found.append(_Note.model_validate_json(file.read_bytes()).site)
    return tuple(dict.fromkeys(found))


def _unplanned(folder: Path, cells: tuple[str, ...]) -> tuple[str, ...]:
    planned = set(cells)
    with os.scandir(folder) as entries:
        # a name that is no text of UTF-8 could not be written down
        others = sorted(e.name for e in entries if e.name not in planned and e.name.isprintable())
    # unlike Path.is_file, False where a folder may not be searched
    return tuple(name for name in others if os.path.isfile(folder / name / RECORD_NAME))  # noqa: PTH113


def _read_manifest(folder: Path) -> SweepManifest:
    path = folder / MANIFEST_NAME
    try:
        return SweepManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    except (ValidationError, UnicodeDecodeError) as error:
        why = f"not a manifest of a sweep: {explain(error).strip()}"
    raise SweepError(
        f"{path}: {why}. Expected a folder results/<sweep>/ with {MANIFEST_NAME} and one folder "
        "per cell, as `make sweep SWEEP=<sweep>` makes it."
    )
