"""What was submitted: which job is to run which cells.

Every call of sbatch has a note: for cells, for a preflight, for a measurement of the interconnect.
It is written before sbatch runs and again after it, so that a login shell may die at any moment:
what it had submitted is found again in the queue.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import AwareDatetime, Field, TypeAdapter, ValidationError, model_validator

from jobs.config.site import NodeLayout
from jobs.messages import NoAnswer, without_links
from jobs.slurm.client.squeue import JobState
from train.config.frozen import Frozen
from train.record.atomic import write_atomically

NOTES_NAME = ".slurm"
#: Folder of batch scripts, tasks and logs.
SUBMITIT = ".submitit"
SCRIPT_NAME = "submission.sh"
#: A busy controller is tried again by sbatch itself, for about so long.
SBATCH_S = 120.0
#: After its note: sbatch and the looks after it take two minutes each at most; what was to be
#: submitted is in the queue by then, or nowhere.
UNCLEAR = timedelta(seconds=3 * SBATCH_S)
Kind = Literal["cells", "preflight", "interconnect"]
OURS = "horoscale:"
_UNITS = TypeAdapter(tuple[tuple[str], ...])  # one cell each
#: In place of a run: of whichever a job is.
ANY = "*"
CLOCKS_DIFFER = timedelta(seconds=60)


class Array(Frozen, extra="ignore"):  # keys of earlier versions are no fault
    """One call of sbatch, planned or noted: an array with an element per cell, or a plain job."""

    job_id: str | None = None  # None: not submitted yet, or nobody lived to write the id down
    cells: tuple[str, ...] = Field(min_length=1)  # of the elements, in their order
    nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    minutes: int = Field(ge=1)  # time limit of an element
    parallel: int = Field(default=1, ge=1)  # elements that may run at once when it is submitted

    @model_validator(mode="before")
    @classmethod
    def _noted_earlier(cls, values: Any) -> Any:
        """Earlier versions noted a list of cells for each element. Notes of elements with several
        cells are not read."""
        if isinstance(values, dict) and "units" in values:
            return values | {"cells": [cell for (cell,) in _UNITS.validate_python(values["units"])]}
        return values

    @property
    def shape(self) -> NodeLayout:
        return NodeLayout(self.nodes, self.ranks_per_node)

    @property
    def key(self) -> str:
        """Its id, or what stands for it before it has one."""
        return self.job_id or self.cells[0]

    def elements(self) -> tuple[str, ...]:
        """Job ids of its elements, in order; none while its id is not known."""
        if self.job_id is None:
            return ()
        if len(self.cells) == 1:
            return (self.job_id,)
        return tuple(f"{self.job_id}_{index}" for index in range(len(self.cells)))


def shares(most: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """``most`` elements at once, split over arrays with so many: equally, none with more than it
    has, and none with 0. What remains goes to the first ones, so that no share moves to and fro."""
    level = 1
    while level < max(sizes.values(), default=1):
        if sum(min(size, level + 1) for size in sizes.values()) > most:
            break
        level += 1
    split = {array: min(size, level) for array, size in sizes.items()}
    larger = [array for array, size in sizes.items() if size > level]
    for array in larger[: max(0, most - sum(split.values()))]:
        split[array] += 1
    return split


def shared(arrays: Iterable[Array], split: Mapping[str, int]) -> list[Array]:
    """The arrays, each with its share."""
    return [array.model_copy(update={"parallel": split[array.key]}) for array in arrays]


class RunNote(Frozen, extra="ignore"):
    """One call of sbatch; earlier versions noted all of a run in one file."""

    schema_version: int = 1
    run: str
    site: str
    job_name: str
    slurm_conf: str | None = None
    submitted_at: AwareDatetime  # just before its first sbatch
    arrays: tuple[Array, ...] = Field(min_length=1)
    preflight_job: str | None = None
    kind: Kind = "cells"
    cluster: str | None = None  # its name; None: of an earlier version, which did not ask
    partition: str | None = None  # that was asked for
    clusters: str | None = None  # SLURM_CLUSTERS, '' where it was not set; None: not noted
    user: int | None = None  # id of who submitted; an earlier version did not note it

    def part(self, index: int) -> str:
        """Which of its jobs that is, in comments and names of folders."""
        return str(index) if self.kind == "cells" else self.kind

    @property
    def is_recent(self) -> bool:
        """Whether a job of which no id is known may still come into the queue."""
        return datetime.now(UTC) - self.submitted_at < UNCLEAR

    def with_id(self, index: int, job_id: str) -> RunNote:
        """The same with the id of one array filled in."""
        arrays = list(self.arrays)
        arrays[index] = arrays[index].model_copy(update={"job_id": job_id})
        return self.model_copy(update={"arrays": tuple(arrays)})


def job_name(sweep: str, folder: Path) -> str:
    """Name of all jobs of one sweep folder, for people who look at the queue."""
    digest = hashlib.sha256(str(without_links(folder)).encode("utf-8", "surrogateescape"))
    return f"horoscale-{sweep}-{digest.hexdigest()[:8]}"


def comment_of(run: str, part: str) -> str:
    """For sbatch --comment: by it the queue itself shows which part of which run a job is."""
    return f"{OURS}{run}:{part}"


def is_of(job: JobState, run: str, part: str) -> bool:
    """Whether this is the job of that run: by its comment or, where a site keeps comments for
    itself, by the batch script that it was submitted with."""
    return job.comment == comment_of(run, part) or f"/{SUBMITIT}/{run}-{part}/" in job.command


def is_anothers(job: JobState, run: str, part: str) -> bool:
    """Whether the job with an id that was noted is not the one that was noted: on another cluster,
    or after a controller lost its state, the same id is another job's.

    Only where the job says so: a site may keep comments for itself, and run a copy of a script.
    """
    return run != ANY and job.comment.startswith(OURS) and not is_of(job, run, part)


def array_folder(sweep: Path, run: str, part: str) -> Path:
    """Folder of one call of sbatch: its script, its tasks, its supervisors' logs."""
    return sweep / SUBMITIT / f"{run}-{part}"


def log_name(job: str) -> str:
    """Name of the supervisor's log in the array's folder, by the job's name (A_I or J)."""
    return f"{job}_0_log.out"


def note_file(sweep: Path, run: str) -> Path:
    return sweep / NOTES_NAME / f"{run}.json"


def write_note(sweep: Path, note: RunNote) -> Path:
    """Write the note of a run under the sweep's folder; the file's path.

    Raises:
        OSError: the folder cannot be written.
    """
    file = note_file(sweep, note.run)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, note.model_dump_json(indent=2) + "\n")
    return file


def read_notes(sweep: Path, seen: dict[object, RunNote] | None = None) -> list[RunNote]:
    """All notes of a sweep, oldest first. Without one of them its cells might run twice. ``seen``:
    what earlier calls read; only notes that have changed since are read again.

    Raises:
        OSError: the folder or a note cannot be read: what was submitted is not known.
        NoAnswer: a file there is none.
    """
    notes: list[RunNote] = []
    wrong: list[str] = []
    seen = {} if seen is None else seen
    try:
        files = sorted((sweep / NOTES_NAME).iterdir())
    except FileNotFoundError:
        files = []
    for file in files:
        if file.suffix != ".json" or file.name.startswith("."):
            continue
        try:
            status = file.stat()
            mark = file, status.st_ino, status.st_size, status.st_mtime_ns
            if mark not in seen:
                note = RunNote.model_validate_json(file.read_bytes())
                user = status.st_uid if note.user is None else note.user
                seen[mark] = note.model_copy(update={"user": user})
            notes.append(seen[mark])
        except FileNotFoundError:
            continue  # sbatch refused, and who called it took the note away meanwhile
        except ValidationError:
            wrong.append(str(file))
    if wrong:
        raise NoAnswer(
            f"{', '.join(wrong)}: not a note of a submission of this version. What was submitted "
            "is not known: wait until no job of the sweep is in the queue (squeue --me shows them, "
            "scancel ends them), then remove what is named"
        )
    return sorted(notes, key=lambda note: (note.submitted_at, note.run))


@dataclass(frozen=True)
class Submitted:
    """The job that a cell was given to last."""

    job: str  # A_I or J
    log: Path  # of its supervisor
    at: datetime
    preflight: str | None = None  # the job that had to end well first
    run: str = ""
    part: str = ""
    cell: str = ""
    cluster: str | None = None  # where it was submitted; None: not noted
    user: int | None = None  # by whom


def listed_as(job: Submitted, jobs: Mapping[str, JobState]) -> JobState | None:
    """The job in Slurm's answer, by job id; not another one with the same id."""
    state = jobs.get(job.job)
    return None if state is None or is_anothers(state, job.run, job.part) else state


def submitted_cells(sweep: Path, notes: Iterable[RunNote]) -> dict[str, Submitted]:
    """Cell id -> its last job. ``notes``: oldest first."""
    last: dict[str, Submitted] = {}
    for note in notes:
        for index, array in enumerate(note.arrays if note.kind == "cells" else ()):
            folder = array_folder(sweep, note.run, note.part(index))
            for job, cell in zip(array.elements(), array.cells, strict=False):
                last[cell] = Submitted(
                    job, folder / log_name(job), note.submitted_at, note.preflight_job, note.run,
                    note.part(index), cell, note.cluster, note.user,
                )  # fmt: skip
    return last


def jobs_at(results: Path, site: str, partition: str | None) -> dict[Path, set[str]]:
    """Folder of a cell -> its jobs, of all sweeps, that were submitted with this site's file and
    to this partition. Notes that cannot be read are left out."""
    jobs: dict[Path, set[str]] = {}
    for folder in results.glob(f"*/{NOTES_NAME}"):
        with suppress(OSError, NoAnswer):
            for note in read_notes(folder.parent):
                if (note.site, note.partition) == (site, partition):
                    for cell, job in submitted_cells(folder.parent, [note]).items():
                        jobs.setdefault(folder.parent / cell, set()).add(job.job)
    return jobs


def adopt(note: RunNote, queue: Mapping[str, JobState]) -> RunNote:
    """Fill in the ids that nobody lived to write down. A job that ended so long ago that Slurm
    forgot it cannot be found; its cells' own records tell of it."""
    for index, array in enumerate(note.arrays):
        if array.job_id is None:
            part = note.part(index)
            if job := next((job for job in queue.values() if is_of(job, note.run, part)), None):
                note = note.with_id(index, job.array)
    return note
