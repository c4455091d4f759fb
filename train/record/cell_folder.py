"""What a start of a cell leaves on disk while it runs.

Part of the contract with the supervisor; loads neither TensorFlow nor numpy.
Layout of a cell's folder: config.json, record.json, epochs.jsonl, checkpoint.npz, weights.h5 (if
the config keeps them), logs/ with start.json, rank-N.log, rank-N.error.json, rank-N.beat, stop (its
being there asks the ranks to stop at the next epoch end), unfinished (they did).
"""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from pathlib import Path

from pydantic import AwareDatetime, ValidationError

from train.config.frozen import Frozen
from train.config.run import RunConfig, load_config
from train.errors import ConfigError, RecordError, text_of
from train.record.atomic import leftovers
from train.record.measurements import EpochRecord
from train.record.run import Attempt, OtherCell, RunError, refuse_other
from train.record.summary import read_own_summary

CONFIG_NAME = "config.json"
EPOCHS_NAME = "epochs.jsonl"
CHECKPOINT_NAME = "checkpoint.npz"
WEIGHTS_NAME = "weights.h5"
START_NAME = "start.json"
STOP_NAME = "stop"
UNFINISHED_NAME = "unfinished"
#: Ranks that stopped at an epoch's end on purpose end with this code, their checkpoint written.
EXIT_UNFINISHED = 85
#: Of a log, for a message.
TAIL_LINES, TAIL_BYTES = 20, 32 * 1024
#: More than two lines of epochs.jsonl, each with the factors of 1,000 variables.
EPOCH_BYTES = 64 * 1024


def rank_file(cell: Path, rank: int, kind: str) -> Path:
    """kind: log, error.json or beat"""
    return cell / "logs" / f"rank-{rank}.{kind}"


class RankFailure(Frozen):
    """rank-N.error.json: why a rank ended, by itself."""

    at: AwareDatetime
    consequence: bool  # it only says that a peer is gone
    error: RunError


def refuse_other_config(cell: Path, config: RunConfig) -> None:
    """Raises OtherCell if the folder has another config's config.json, whose run may be waiting
    or interrupted there; Unreadable."""
    path, there = cell / CONFIG_NAME, config
    with contextlib.suppress(ConfigError):  # absent, or no config: no run can be going on with it
        there = load_config(path)
    refuse_other(there, config, path)


def forget_earlier(cell: Path, *, resume: bool) -> None:
    """Remove what an earlier start left that would be mistaken for this one's. Only for who holds
    the cell's lock. Raises OSError."""
    stale = [cell / "logs" / name for name in (START_NAME, STOP_NAME, UNFINISHED_NAME)]
    stale += [*(cell / "logs").glob("rank-*.error.json"), *leftovers(cell)]
    if not resume:
        stale += [cell / name for name in (EPOCHS_NAME, CHECKPOINT_NAME, WEIGHTS_NAME)]
    for file in stale:
        file.unlink(missing_ok=True)


def read_unfinished(cell: Path) -> str:
    """Where and why the last start stopped on purpose; '' if it did not. Exit codes prove less: a
    launcher may end the other tasks by a signal once the first one is gone."""
    return text_of(cell / "logs" / UNFINISHED_NAME)


def read_failures(cell: Path) -> list[RankFailure]:
    """All ranks' errors of the last start, earliest first; unreadable ones left out."""
    failures, files = [], list[Path]()
    with contextlib.suppress(OSError):
        files = [*(cell / "logs").glob("rank-*.error.json")]
    for file in files:
        with contextlib.suppress(OSError, ValueError):
            failures.append(RankFailure.model_validate_json(file.read_bytes()))
    return sorted(failures, key=lambda failure: failure.at)


def read_epochs(cell: Path) -> tuple[EpochRecord, ...]:
    """Epochs that ended so far; a last line that is not whole yet is left out."""
    try:
        lines = (cell / EPOCHS_NAME).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    epochs = []
    with contextlib.suppress(ValidationError):
        for line in lines:
            epochs.append(EpochRecord.model_validate_json(line))
    return tuple(epochs)


def read_last_epoch(cell: Path) -> EpochRecord | None:
    """The last epoch that ended, read again only when its file has changed."""
    file = cell / EPOCHS_NAME
    return None if (mark := file_mark(file)) is None else _last_epoch(file, mark)


@lru_cache(maxsize=4096)
def _last_epoch(file: Path, _mark: tuple[int, ...]) -> EpochRecord | None:
    """From the end of the file alone: it is read beside ranks that are timed."""
    with contextlib.suppress(OSError), file.open("rb") as lines:
        lines.seek(max(0, lines.seek(0, os.SEEK_END) - EPOCH_BYTES))
        for line in reversed(lines.read().splitlines()):
            with contextlib.suppress(ValueError):  # half a line
                return EpochRecord.model_validate_json(line)
    return None


def file_mark(file: Path) -> tuple[int, int, int] | None:
    """Inode, size and time in ns: differs when the file has changed; None if it is not seen."""
    with contextlib.suppress(OSError):
        status = file.stat()
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def earlier_attempts(cell: Path, config: RunConfig) -> tuple[Attempt, ...]:
    """Starts that an earlier record of this config counts; none if it is broken or another's.
    Raises Unreadable."""
    try:
        return read_own_summary(cell, config).attempts
    except (RecordError, OtherCell):
        return ()


def tail_of(log: Path) -> tuple[str, ...]:
    """Its last lines; of a log of any size only the end is read."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return tuple(file.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:])
    return ()


def last_words(log: Path, count: int = 3) -> str:
    """So many of its last lines, in one."""
    lines = [line.strip() for line in tail_of(log) if line.strip()]
    return " / ".join(lines[-count:]) or "it printed nothing"
