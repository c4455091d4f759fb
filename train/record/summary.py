"""What decides about a cell, read from the two ends of its record: nearly all of its 100 KB are
epochs. A file that was cut off, or of which either end is not as write_record writes it, is parsed
as a whole. Damage in between shows only to those who read the whole.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, model_validator

from train.config.frozen import Frozen
from train.config.run import RunConfig
from train.record.run import (
    RECORD_NAME,
    Attempt,
    RunError,
    Status,
    World,
    read_record,
    refuse_other,
)

END_BYTES = 8192
# quotes within a text are escaped, so both match keys only
_AFTER_HEAD = re.compile(rb',\s*"data":')
_TAIL = re.compile(rb'"attempts":\s*\[')


class RecordSummary(Frozen):
    """The first and the last keys of a record."""

    schema_version: Literal[1]
    cell_id: str
    status: Status
    error: RunError | None
    config: RunConfig
    world: World | None
    attempts: tuple[Attempt, ...]
    started_at: AwareDatetime
    ended_at: AwareDatetime
    missing: dict[str, str]

    @model_validator(mode="after")
    def _agrees(self) -> RecordSummary:
        if (self.status == "completed") != (self.error is None):
            raise ValueError("it contradicts itself: the whole record says how")
        return self


def read_summary(path: Path) -> RecordSummary:
    """Raises NoRecord, RecordError, Unreadable: as :func:`train.record.run.read_record`."""
    try:
        return RecordSummary.model_validate_json(_both_ends(path))
    except (OSError, ValueError):
        record = read_record(path)  # it says what is wrong, if anything is
    return RecordSummary(**{key: getattr(record, key) for key in RecordSummary.model_fields})


def read_own_summary(cell: Path, config: RunConfig) -> RecordSummary:
    """Of the record in the folder ``cell``; raises the same, and OtherCell if it is not of this
    very config."""
    path = cell / RECORD_NAME
    summary = read_summary(path)
    refuse_other(summary.config, config, path)
    # the id of a config costs as much as the rest of a summary, and ``config`` knows its own
    if summary.cell_id != config.cell_id():
        read_record(path)  # it says that
    return summary


def _both_ends(path: Path) -> bytes:
    """A JSON object of the first and the last keys."""
    with path.open("rb", buffering=0) as file:
        head = file.read(END_BYTES)
        file.seek(-min(END_BYTES, file.seek(0, 2)), 2)
        tail = file.read()
    head_end, tail_start = _AFTER_HEAD.search(head), _TAIL.search(tail)
    if head_end is None or tail_start is None:
        raise ValueError(f"{path}: expected a record")
    return head[: head_end.start()] + b"," + tail[tail_start.start() :]
