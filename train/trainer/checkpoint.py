"""One file per cell from which training goes on exactly: weights, optimizer state, history."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import numpy as np
import tensorflow as tf

from train.config.frozen import Frozen
from train.config.run import RunConfig
from train.errors import read_whole
from train.record.atomic import write_atomically
from train.record.run import EpochRecord


class Progress(Frozen):
    """What had been done when the checkpoint was written, at the end of an epoch."""

    epochs: tuple[EpochRecord, ...]
    last_rate: float | None  # of the last step that was applied, if one was
    position: float  # of the schedule's clock
    adascale: tuple[float, ...] | None  # its averages, where there are any
    skipped_in_a_row: int  # steps up to the last one
    alarms: tuple[str, ...] = ()
    image: str | None = None  # sha256 of the container image that it ran from, if any
    oversubscribed: bool = False  # in one of these epochs


class _Meta(Progress):
    """What is in the file besides the arrays."""

    identity: str


def _identity(config: RunConfig, fingerprint: str) -> str:
    """A checkpoint belongs to one config on one data set; any other is refused."""
    return hashlib.sha256((config.digest() + fingerprint).encode()).hexdigest()


def save(
    path: Path,
    config: RunConfig,
    fingerprint: str,
    variables: list[tf.Variable],
    progress: Progress,
) -> None:
    """Write the whole state atomically (rank 0 only).

    Raises:
        OSError: disk full and the like; an older checkpoint stays as it was.
    """
    meta = _Meta(identity=_identity(config, fingerprint), **dict(progress))
    arrays = {f"v{i}": variable.numpy() for i, variable in enumerate(variables)}
    arrays["meta"] = np.frombuffer(meta.model_dump_json().encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)
    for left in path.parent.glob(f".{path.name}.*.tmp"):  # of a start that was killed while writing
        left.unlink(missing_ok=True)
    write_atomically(path, content.getvalue())


def restore(
    path: Path, config: RunConfig, fingerprint: str, variables: list[tf.Variable]
) -> Progress | None:
    """Load the state into ``variables``; None when there is nothing usable (rank 0 only).

    A damaged file or one of another config, data set or version of this code is not an error: the
    cell starts anew. Nothing is loaded before all of it has been read.

    Raises:
        Unreadable: the file cannot be read now, and a run that began anew would replace it.
    """
    content = read_whole(path)
    try:
        with np.load(io.BytesIO(content or b""), allow_pickle=False) as stored:
            meta = _Meta.model_validate_json(stored["meta"].tobytes())
            values = [stored[f"v{i}"] for i in range(len(stored.files) - 1)]
    except Exception:  # noqa: BLE001  (no list is long enough for what damaged bytes may raise)
        return None
    if meta.identity != _identity(config, fingerprint) or len(values) != len(variables):
        return None
    if any(value.shape != tuple(v.shape) for value, v in zip(values, variables, strict=True)):
        return None
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    return Progress(**{name: getattr(meta, name) for name in Progress.model_fields})
