"""One file per cell from which training goes on exactly: weights, optimizer state, history."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from train.config.frozen import Frozen
from train.config.run import RunConfig
from train.record.run import EpochRecord


@dataclass(frozen=True)
class Progress:
    """What had been done when the checkpoint was written, at the end of an epoch."""

    epochs: tuple[EpochRecord, ...]
    last_rate: float | None  # of the last step that was applied, if one was
    position: float  # of the schedule's clock
    adascale: tuple[float, ...] | None  # its averages, where there are any
    skipped_in_a_row: int  # steps up to the last one
    alarms: tuple[str, ...] = ()
    image: str | None = None  # sha256 of the container image that it ran from, if any

    @property
    def epochs_done(self) -> int:
        return len(self.epochs)


class _Meta(Frozen):
    """What is in the file besides the arrays."""

    identity: str
    epochs: tuple[EpochRecord, ...]
    last_rate: float | None
    position: float
    adascale: tuple[float, ...] | None
    skipped_in_a_row: int
    alarms: tuple[str, ...] = ()
    image: str | None = None


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
    meta = _Meta(
        identity=_identity(config, fingerprint),
        epochs=progress.epochs,
        last_rate=progress.last_rate,
        position=progress.position,
        adascale=progress.adascale,
        skipped_in_a_row=progress.skipped_in_a_row,
        alarms=progress.alarms,
        image=progress.image,
    )
    arrays = {f"v{i}": variable.numpy() for i, variable in enumerate(variables)}
    arrays["meta"] = np.frombuffer(meta.model_dump_json().encode(), np.uint8)
    for left in path.parent.glob(f".{path.name}.*.tmp"):  # of a start that was killed while writing
        left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            _write_arrays(out, arrays)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _write_arrays(out: IO[bytes], arrays: dict[str, npt.NDArray[Any]]) -> None:
    """What np.savez does, which on a full disk leaves its archive open behind it."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(  # type: ignore[no-untyped-call]
                    entry, array, allow_pickle=False
                )


def restore(
    path: Path, config: RunConfig, fingerprint: str, variables: list[tf.Variable]
) -> Progress | None:
    """Load the state into ``variables``; None when there is nothing usable (rank 0 only).

    A damaged file or one of another config, data set or version of this code is not an error: the
    cell starts anew. Nothing is loaded before all of it has been read.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
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
    return Progress(
        meta.epochs,
        meta.last_rate,
        meta.position,
        meta.adascale,
        meta.skipped_in_a_row,
        meta.alarms,
        meta.image,
    )
