"""What was submitted: for each run of `make sweep`, which job is to run which cells.

A note is written before sbatch runs and again after each one, so that a login shell may die at any
moment: what it had submitted is found again in the queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from pydantic import AwareDatetime, Field, ValidationError

from jobs.slurm.queue import JobState
from train.config.frozen import Frozen
from train.record.atomic import write_atomically

FOLDER_NAME = ".slurm"
PREFLIGHT = "preflight"
CLOCKS_DIFFER = timedelta(seconds=60)


class ArrayNote(Frozen):
    """One sbatch: an array, or a plain job where there is one unit only."""

    job_id: str | None = None  # None: not submitted yet, or nobody lived to write the id down
    units: tuple[tuple[str, ...], ...] = Field(min_length=1)  # cells of each element, in order
    nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    minutes: int = Field(ge=1)  # time limit of an element
    block_seed: int | None = None  # of the random order of cells within packed units

    def elements(self) -> tuple[str, ...]:
        """Job ids of its units, in order; none while its id is not known."""
        if self.job_id is None:
            return ()
        if len(self.units) == 1:
            return (self.job_id,)
        return tuple(f"{self.job_id}_{index}" for index in range(len(self.units)))


class RunNote(Frozen):
    """One run of `make sweep` on a cluster."""

    schema_version: int = 1
    run: str
    site: str
    job_name: str
    slurm_conf: str | None = None
    submitted_at: AwareDatetime  # just before its first sbatch
    arrays: tuple[ArrayNote, ...]
    preflight_job: str | None = None

    def with_id(self, index: int, job_id: str) -> RunNote:
        """The same with the id of one array filled in."""
        known = self.arrays[index].model_copy(update={"job_id": job_id})
        arrays = (*self.arrays[:index], known, *self.arrays[index + 1 :])
        return self.model_copy(update={"arrays": arrays})


def comment_of(run: str, part: int | str) -> str:
    """For sbatch --comment: which array of which run a job is, told by the queue itself."""
    return f"horoscale:{run}:{part}"


def write_note(sweep: Path, note: RunNote) -> Path:
    """Write the note of a run under the sweep's folder; the file's path.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = sweep / FOLDER_NAME
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{note.run}.json"
    write_atomically(file, note.model_dump_json(indent=2) + "\n")
    return file


def read_notes(sweep: Path) -> tuple[list[RunNote], list[str]]:
    """All readable notes of a sweep, oldest first, and a line for each file that is none."""
    notes, broken = [], []
    files: list[Path] = []
    with contextlib.suppress(OSError):
        files = sorted((sweep / FOLDER_NAME).glob("[!.]*.json"))
    for file in files:
        try:
            notes.append(RunNote.model_validate_json(file.read_bytes()))
        except (OSError, ValidationError) as error:
            why = error.strerror if isinstance(error, OSError) else "not the note of a run"
            broken.append(f"{file}: {why}: its jobs are found by their name only")
    return sorted(notes, key=lambda note: (note.submitted_at, note.run)), broken


def jobs_of(notes: Iterable[RunNote]) -> dict[str, tuple[str, ...]]:
    """Job id -> its cells, for every job that was submitted; ``notes`` oldest first."""
    found: dict[str, tuple[str, ...]] = {}
    for note in notes:
        for array in note.arrays:
            found |= dict(zip(array.elements(), array.units, strict=False))
    return found


def adopt(
    note: RunNote, queue: Mapping[str, JobState], others: Iterable[RunNote] = ()
) -> tuple[RunNote, list[str]]:
    """Fill in ids that nobody lived to write down, from the queue; and what could not be told.

    A job says in its comment which array of which run it is: that is certain. Where a site keeps
    comments for itself, a job without one is ours when it has the sweep's name, is in nobody's
    note, and came after the last array whose id is known: since each id is written down before the
    next sbatch runs, only the first array without one can have been submitted. Two such jobs, or
    one that does not fit the array, are left alone and named: better a cell that runs twice after
    `make cancel` than one whose job is taken for another's. A job that ended so long ago that
    Slurm forgot it cannot be found; its cells' own records tell of it.
    """
    named: dict[str, list[JobState]] = {}
    for job in queue.values():
        if job.name == note.job_name:
            named.setdefault(job.array, []).append(job)
    for index, array in enumerate(note.arrays):
        mine = [a for a, js in named.items() if js[0].comment == comment_of(note.run, index)]
        if array.job_id is None and mine:
            note = note.with_id(index, mine[0])
    mine = [a for a, js in named.items() if js[0].comment == comment_of(note.run, PREFLIGHT)]
    if note.preflight_job is None and mine:
        note = note.model_copy(update={"preflight_job": mine[0]})
    return _by_order(note, named, [note, *others])


def _by_order(
    note: RunNote, named: Mapping[str, Sequence[JobState]], notes: Sequence[RunNote]
) -> tuple[RunNote, list[str]]:
    gap = next((i for i, array in enumerate(note.arrays) if array.job_id is None), None)
    if gap is None:
        return note, []
    taken = {a.job_id for n in notes for a in n.arrays} | {n.preflight_job for n in notes}
    last = max((int(a.job_id) for a in note.arrays if a.job_id and a.job_id.isdigit()), default=0)
    last = max(last, int(note.preflight_job or 0))
    loose = [
        array for array, jobs in named.items()
        if array not in taken and array.isdigit() and int(array) > last
        and not jobs[0].comment.startswith("horoscale:")
        and all(_came_after(job, note) for job in jobs)
    ]  # fmt: skip
    if len(loose) == 1 and _fits(note.arrays[gap], named[loose[0]]):
        return note.with_id(gap, loose[0]), []
    return note, [f"job {array} has this sweep's name, and no note says what it runs: make cancel "
                  "ends it" for array in loose]  # fmt: skip


def _came_after(job: JobState, note: RunNote) -> bool:
    """squeue writes times in this machine's zone; the controller's clock may differ a little."""
    began = (note.submitted_at - CLOCKS_DIFFER).astimezone().replace(tzinfo=None, microsecond=0)
    return job.submitted is not None and job.submitted >= began.isoformat()


def _fits(array: ArrayNote, jobs: Iterable[JobState]) -> bool:
    plain = len(array.units) == 1
    for job in jobs:
        _, _, index = job.job.partition("_")
        if plain != (index == "") or (index and int(index) >= len(array.units)):
            return False
    return True
