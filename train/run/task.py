"""Where and how one start of a cell runs; nothing of it changes a result. Loads no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class Task:
    out: Path  # folder of the record, the checkpoint and the logs
    data: Path  # folder with the raw data sets
    store: Path | None  # folder of their prepared forms; None: in ``data``
    resume: bool  # go on from the checkpoint in ``out``
    force: bool  # replace a good record
    attempt: int  # which start of the cell it is, from 1
    started_at: datetime
    stop_at: float | None  # seconds since 1970 at which the ranks must be gone
    model_file: Path  # of a network, if the config names one of a file
