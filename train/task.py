"""Where and how one start of a cell runs; nothing of it changes a result. Loads no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from train.budget import Budget


@dataclass(frozen=True)
class Task:
    out: Path  # folder of the record, the checkpoint and the logs
    data: Path  # folder with the raw data sets
    store: Path | None  # folder of their prepared forms; None: in ``data``
    resume: bool  # go on from the checkpoint in ``out``
    force: bool  # replace a good record
    attempt: int  # which start of the cell it is, from 1
    started_at: datetime
    budget: Budget


class WorldError(RuntimeError):
    """The world that Horovod made is not the one that the config asks for."""


class Unfinished(Exception):
    """All ranks stopped at an epoch's end on purpose, with a checkpoint to go on from."""

    def __init__(self, why: str, done: int, of: int) -> None:
        self.why, self.done, self.of = why, done, of
        super().__init__(f"{why}; {done} of {of} epochs are done and in the checkpoint")
