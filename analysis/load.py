"""Read one sweep's folder: which records may be used, and why every other planned cell may not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from analysis.checks import rejections
from train.record.run import GOOD, MANIFEST_NAME, RECORD_NAME, RecordError, RunRecord, SweepManifest
from train.record.run import read_record as read_strictly

#: missing: no record; failed: the record says so; rejected: it cannot be compared;
#: unreadable: it is no record at all.
Kind = Literal["missing", "failed", "rejected", "unreadable"]
KINDS: tuple[Kind, ...] = ("missing", "failed", "rejected", "unreadable")


class SweepError(ValueError):
    """There is no sweep to report on; the text says what was found, expected and what to do."""


@dataclass(frozen=True)
class Problem:
    """One planned cell that is in no table."""

    cell_id: str
    kind: Kind
    status: str  # of the record; "none" where there is no readable one
    reason: str
    where: str | None = None
    what_to_do: str | None = None
    rank: int | None = None
    log_tail: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """Everything on disk about one sweep, sorted into what can and cannot be used."""

    folder: Path
    manifest: SweepManifest
    records: tuple[RunRecord, ...]  # usable, in the order of the manifest
    problems: tuple[Problem, ...]
    unplanned: tuple[str, ...]  # folders with a record that the present plan does not name

    def count(self, status: str) -> int:
        return sum(record.status == status for record in self.records)


def load_sweep(folder: Path) -> Sweep:
    """Read results/<sweep>/ once.

    Raises:
        SweepError: the folder or its sweep.json is missing or broken.
    """
    manifest = _read_manifest(folder)
    cells = tuple(dict.fromkeys(manifest.cells))
    found = [_read_cell(folder, cell_id) for cell_id in cells]
    on_disk = {path.parent.name for path in folder.glob(f"*/{RECORD_NAME}")}
    return Sweep(
        folder=folder,
        manifest=manifest,
        records=tuple(item for item in found if isinstance(item, RunRecord)),
        problems=tuple(item for item in found if isinstance(item, Problem)),
        unplanned=tuple(sorted(on_disk - set(cells))),
    )


def _read_manifest(folder: Path) -> SweepManifest:
    path = folder / MANIFEST_NAME
    name = folder.name or "NAME"
    expected = (
        f"Expected a folder results/<sweep>/ with {MANIFEST_NAME} and one folder per cell; "
        f"`make sweep SWEEP={name}` makes it."
    )
    if not folder.is_dir():
        raise SweepError(f"{folder}: no such folder. {expected}")
    if not path.is_file():
        raise SweepError(f"{folder}: has no {MANIFEST_NAME}. {expected}")
    try:
        return SweepManifest.model_validate_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SweepError(f"{path}: cannot be read: {error.strerror}. {expected}") from error
    except (ValidationError, UnicodeDecodeError) as error:
        raise SweepError(
            f"{path}: not a manifest of a sweep: {_brief(error)}. {expected}"
        ) from error


def _read_cell(folder: Path, cell_id: str) -> RunRecord | Problem:
    path = folder / cell_id / RECORD_NAME
    if not path.exists():
        return _missing(path.parent, cell_id)
    try:
        record = read_strictly(path)
    except RecordError as error:
        # the reader names the whole path; the table already names the cell
        reason = str(error).removeprefix(f"{path}: ")
        where = f"{cell_id}/{RECORD_NAME}"
        return Problem(cell_id, "unreadable", "none", reason, where, "make sweep runs it again")
    if record.status not in GOOD:
        return _failed(record, cell_id)
    reasons = rejections(record, cell_id)
    if reasons:
        todo = "see its logs/, then make sweep FORCE=1 runs it again"
        return Problem(cell_id, "rejected", record.status, "; ".join(reasons), what_to_do=todo)
    return record


def _missing(cell: Path, cell_id: str) -> Problem:
    if not cell.is_dir():
        reason = "never started: it has no folder"
    elif (cell / "epochs.jsonl").is_file():
        lines = (cell / "epochs.jsonl").read_bytes().count(b"\n")
        reason = f"no record yet; epochs.jsonl shows {lines} finished epochs (still running?)"
    else:
        reason = "no record yet (waiting in the queue, running its first epoch, or killed)"
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
    )


def _brief(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "whole file"
        return f"{where}: {first['msg']}"
    return str(error)
