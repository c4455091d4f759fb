"""One file per cell from which training goes on exactly: weights, optimizer state, history."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

from train.config import RunConfig
from train.record import EpochRecord


@dataclass(frozen=True)
class Progress:
    """What had been done when the checkpoint was written, at the end of an epoch."""

    epochs: tuple[EpochRecord, ...]
    last_rate: float

    @property
    def epochs_done(self) -> int:
        return len(self.epochs)


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
    meta = {
        "identity": _identity(config, fingerprint),
        "epochs": [epoch.model_dump(mode="json") for epoch in progress.epochs],
        "last_rate": progress.last_rate,
    }
    arrays = {f"v{i}": variable.numpy() for i, variable in enumerate(variables)}
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            np.savez(out, **arrays)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def restore(
    path: Path, config: RunConfig, fingerprint: str, variables: list[tf.Variable]
) -> Progress | None:
    """Load the state into ``variables``; None when there is nothing usable (rank 0 only).

    A damaged file or one of another config or data set is not an error: the cell starts anew.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            meta = json.loads(stored["meta"].tobytes())
            if meta["identity"] != _identity(config, fingerprint):
                return None
            values = [stored[f"v{i}"] for i in range(len(variables))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if any(value.shape != tuple(v.shape) for value, v in zip(values, variables, strict=True)):
        return None
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)
    epochs = tuple(EpochRecord.model_validate(epoch) for epoch in meta["epochs"])
    return Progress(epochs, meta["last_rate"])
