"""Submit cells: units, arrays, and a note of each call of sbatch before and after it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.ledger import FORCED, Standing, archive
from jobs.lock import hold
from jobs.site import Site
from jobs.slurm.commands import SlurmError
from jobs.slurm.image import Image
from jobs.slurm.notes import ArrayNote, RunNote, array_folder, comment_of
from jobs.slurm.script import job_name, script_text
from jobs.slurm.submit import submit
from jobs.slurm.unit import UnitTask
from jobs.slurm.units import Array, Unit, arrays_of, units_of
from jobs.slurm.verdict import failed_node
from train.record.run import RECORD_NAME


@dataclass(frozen=True)
class Sending:
    """All that the jobs of one run share."""

    sweep: str
    folder: Path
    site_name: str
    site: Site
    image: Image
    root: Path  # the code that the jobs run
    data: Path
    store: Path
    folders: tuple[str, ...]  # data sets that are folders of images
    stall_s: float
    pack: int
    git_commit: str | None
    git_dirty: bool | None
    cluster: str | None = None  # its name, where it says

    @property
    def job_name(self) -> str:
        return job_name(self.sweep, self.folder)


def plan_arrays(sending: Sending, cells: Sequence[Standing]) -> tuple[Array, ...]:
    """Raises ConfigError where cells do not fit the site."""
    units = units_of([cell.config for cell in cells], sending.site, pack=sending.pack)
    return arrays_of(units, sending.site)


def send(
    sending: Sending,
    arrays: Sequence[Array],
    cells: Sequence[Standing],
    preflight: str | None,
    avoid: Collection[str] = (),
) -> Iterator[tuple[Array, str]]:
    """Submit the arrays one after another; each with its job's id as soon as it has one.

    ``cells``: those in the arrays; ``preflight``: the job that has to end well first; ``avoid``:
    nodes that failed under cells of these arrays.

    Raises:
        SlurmError: sbatch refused or gave no answer; the note tells what was submitted before.
    """
    asked_at = datetime.now(UTC)
    run = f"{asked_at:%Y%m%dT%H%M%S%f}"
    note = RunNote(
        run=run,
        site=sending.site_name,
        job_name=sending.job_name,
        slurm_conf=sending.site.slurm_conf,
        submitted_at=asked_at,
        arrays=tuple(_note(array, sending) for array in arrays),
        preflight_job=preflight,
        cluster=sending.cluster,
        user=os.getuid(),
    )
    forced = {cell.config.cell_id() for cell in cells if cell.status == FORCED}
    marks = {name: _mark(sending.folder / name) for name in forced}
    for index, array in enumerate(arrays):
        tasks = [
            unit_task(sending, unit, f"{run}-{index}/{place}", asked_at, forced)
            for place, unit in enumerate(array.units)
        ]
        script = script_text(
            sending.site, array, array_folder(sending.folder, run, index),
            name=sending.job_name, root=sending.root,
            dependency=f"afterok:{preflight}" if preflight else None,
            comment=comment_of(run, index), exclude=",".join(sorted(avoid)) or None,
        )  # fmt: skip
        plain = [task.model_dump(mode="json") for task in tasks]
        try:
            note = submit(sending.folder, note, index, plain, script)
        except SlurmError as error:
            error.submission = (run, note.part(index), array)
            raise
        for name in (name for unit in array.units for name in unit.cells if name in forced):
            _put_aside(sending.folder / name, marks[name])
        yield array, note.arrays[index].job_id or ""


def failed_nodes(cells: Sequence[Standing]) -> set[str]:
    """Nodes that failed under the last attempts of these cells."""
    return {node for cell in cells if (node := failed_node(cell.folder))}


def _mark(cell: Path) -> tuple[int, int] | None:
    """Which record is there, told without any clock."""
    try:
        found = (cell / RECORD_NAME).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _put_aside(cell: Path, mark: tuple[int, int] | None) -> None:
    """The good record of a cell that is run by force, once its job is in the queue: should that
    never begin, the cell must not look done. A supervisor that came first has done it."""
    with suppress(OSError), hold(cell) as ours:
        if ours and mark is not None and _mark(cell) == mark:
            archive(cell)


def _note(array: Array, sending: Sending) -> ArrayNote:
    return ArrayNote(
        units=tuple(unit.cells for unit in array.units),
        nodes=array.shape.nodes,
        ranks_per_node=array.shape.ranks_per_node,
        minutes=array.minutes,
        block_seed=0 if sending.pack > 1 else None,
    )


def unit_task(
    sending: Sending,
    unit: Unit,
    block: str,
    asked_at: datetime | None = None,
    forced: Collection[str] = (),
) -> UnitTask:
    """What the job of one unit is told. ``forced``: cells that have a good record."""
    return UnitTask(
        cells=tuple(str(sending.folder / name) for name in unit.cells),
        forced=tuple(str(sending.folder / name) for name in unit.cells if name in forced),
        asked_at=asked_at or datetime.now(UTC),
        site=sending.site,
        nodes=unit.shape.nodes,
        ranks_per_node=unit.shape.ranks_per_node,
        image=sending.image.path,
        image_digest=sending.image.digest,
        image_mark=sending.image.mark,
        root=str(sending.root),
        data=str(sending.data),
        store=str(sending.store),
        folders=sending.folders,
        stall_s=sending.stall_s,
        minutes=unit.minutes,
        block=block,
        git_commit=sending.git_commit,
        git_dirty=sending.git_dirty,
    )
