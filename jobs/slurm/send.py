"""Submit cells: units, arrays, and a note of each call of sbatch before and after it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.ledger import FORCED, Standing, archive
from jobs.lock import hold
from jobs.site import Site
from jobs.slurm.image import Image
from jobs.slurm.inventory import array_folder
from jobs.slurm.notes import ArrayNote, RunNote, comment_of, write_note
from jobs.slurm.script import job_name, parameters
from jobs.slurm.submit import submit_array
from jobs.slurm.supervise import run_unit
from jobs.slurm.unit import UnitTask
from jobs.slurm.units import Array, Unit, arrays_of, units_of, waves
from train.record.run import RECORD_NAME


@dataclass(frozen=True)
class Sending:
    """All that the jobs of one run share."""

    sweep: str
    folder: Path
    site_name: str
    site: Site
    image: Image
    root: Path
    data: Path
    store: Path
    folders: tuple[str, ...]  # data sets that are folders of images
    stall_s: float
    pack: int
    git_commit: str | None
    git_dirty: bool | None

    @property
    def job_name(self) -> str:
        return job_name(self.sweep, self.folder)


def plan_arrays(sending: Sending, cells: Sequence[Standing]) -> tuple[Array, ...]:
    """Raises ConfigError where cells do not fit the site."""
    units = units_of([cell.config for cell in cells], sending.site, pack=sending.pack)
    return arrays_of(units, sending.site)


def send(
    sending: Sending, cells: Sequence[Standing], room: int | None, preflight: str | None
) -> tuple[RunNote, list[str]]:
    """Submit as many cells as the queue has ``room`` for (None: all).

    ``preflight``: the job that has to end well first.

    Returns:
        The run's note, and the ids of the cells that have to wait for room.

    Raises:
        SlurmError: sbatch refused or gave no answer; the note tells what was submitted before.
    """
    wave = waves(plan_arrays(sending, cells), room)
    asked_at = datetime.now(UTC)
    run = f"{asked_at:%Y%m%dT%H%M%S%f}"
    note = RunNote(
        run=run,
        site=sending.site_name,
        job_name=sending.job_name,
        slurm_conf=sending.site.slurm_conf,
        submitted_at=asked_at,
        arrays=tuple(_note(array, sending) for array in wave.now),
        preflight_job=preflight,
    )
    later = [cell for array in wave.later for unit in array.units for cell in unit.cells]
    if not wave.now:
        return note, later
    write_note(sending.folder, note)
    forced = {cell.config.cell_id() for cell in cells if cell.status == FORCED}
    marks = {name: _mark(sending.folder / name) for name in forced}
    for index, array in enumerate(wave.now):
        told = [
            unit_task(sending, unit, f"{run}-{index}/{place}", asked_at, forced)
            for place, unit in enumerate(array.units)
        ]
        asked = parameters(
            sending.site, array, name=sending.job_name, root=sending.root,
            dependency=f"afterok:{preflight}" if preflight else None,
            comment=comment_of(run, index),
        )  # fmt: skip
        folder = array_folder(sending.folder, run, index)
        plain = [task.model_dump(mode="json") for task in told]
        job = submit_array(run_unit, plain, folder, asked, sending.site.slurm_conf)
        note = note.with_id(index, job)
        write_note(sending.folder, note)
        for name in (name for unit in array.units for name in unit.cells if name in forced):
            _put_aside(sending.folder / name, marks[name])
    return note, later


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
    with hold(cell) as ours:
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
