"""The prepared form of a data set: four .npy files and meta.json in a folder, whole or absent."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import ValidationError

from train.config import explain
from train.data.arrays import ARRAYS, Dataset, chunks
from train.data.errors import DataError
from train.frozen import Frozen

META = "meta.json"
_STALE_S = 24 * 3600.0


class ArrayFacts(Frozen):
    dtype: str  # as NumPy writes it, e.g. |u1
    shape: tuple[int, ...]
    file_size: int  # bytes, with the .npy header


class Meta(Frozen):
    """meta.json, written last."""

    format: Literal[1] = 1
    dataset: str  # as in a config
    name: str
    classes: tuple[str, ...]
    labelled: bool
    fingerprint: str
    arrays: dict[Literal["train_x", "train_y", "validation_x", "validation_y"], ArrayFacts]


def write(folder: Path, dataset: str, data: Dataset) -> None:
    """Build the prepared form beside ``folder``, then rename it into place.

    When another process was faster, its result is kept: both come from the same files. A build
    that was killed leaves a hidden folder, which a later one removes after a day.

    Raises:
        OSError: the disk is full or the folder not writable; nothing is then left.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{folder.name}."
    _remove_stale(folder.parent, prefix)
    building = folder.parent / f"{prefix}{uuid.uuid4().hex}"
    try:
        building.mkdir()
        facts = {name: _write_array(building / f"{name}.npy", data, name) for name in ARRAYS}
        meta = Meta(
            dataset=dataset,
            name=data.name,
            classes=data.classes,
            labelled=data.labelled,
            fingerprint=data.fingerprint,
            arrays=facts,
        )
        with (building / META).open("w", encoding="utf-8") as out:
            json.dump(meta.model_dump(mode="json"), out, indent=2)
            out.flush()
            os.fsync(out.fileno())
        try:
            building.rename(folder)
        except OSError as error:
            if folder.exists() and not (folder / META).exists():
                raise DataError(_damaged(folder, folder / META, "not there")) from error
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write_array(path: Path, data: Dataset, name: str) -> ArrayFacts:
    """As np.save does, which hides the reason when the disk is full."""
    array: NDArray[np.generic] = getattr(data, name)
    with path.open("wb") as out:
        npy.write_array_header_1_0(out, npy.header_data_from_array_1_0(array))  # type: ignore[no-untyped-call]
        for chunk in chunks(array):
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
        return ArrayFacts(dtype=array.dtype.str, shape=array.shape, file_size=out.tell())


def _remove_stale(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{prefix}*"):
        with suppress(FileNotFoundError):  # another process has just renamed its own into place
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)


def read_meta(folder: Path) -> Meta:
    """Raises: DataError: meta.json cannot be read or is not what was written."""
    file = folder / META
    try:
        return Meta.model_validate_json(file.read_bytes())
    except OSError as error:
        raise DataError(_damaged(folder, file, error.strerror or str(error))) from error
    except ValidationError as error:
        raise DataError(_damaged(folder, file, explain(error))) from error


def read(folder: Path) -> Dataset:
    """Images stay on disk and are mapped into memory, shared by the ranks of a node.

    Raises:
        DataError: a file is not there, truncated, or not what meta.json says.
    """
    meta = read_meta(folder)
    arrays = {name: _read_array(folder, name, meta) for name in ARRAYS}
    return Dataset(
        name=meta.name,
        train_x=arrays["train_x"],
        train_y=np.array(arrays["train_y"], np.int64),
        validation_x=arrays["validation_x"],
        validation_y=np.array(arrays["validation_y"], np.int64),
        classes=meta.classes,
        fingerprint=meta.fingerprint,
        labelled=meta.labelled,
    )


def _read_array(folder: Path, name: str, meta: Meta) -> NDArray[np.uint8]:
    file = folder / f"{name}.npy"
    expected = meta.arrays[name]  # type: ignore[index]
    try:
        size = file.stat().st_size
        if size != expected.file_size:
            raise ValueError(f"{size:,} bytes found, {expected.file_size:,} expected")
        # a plain view: NumPy's memmap class makes each slice dearer
        array = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    except OSError as error:
        raise DataError(_damaged(folder, file, error.strerror or str(error))) from error
    except ValueError as error:
        raise DataError(_damaged(folder, file, str(error))) from error
    if (array.dtype.str, array.shape) != (expected.dtype, expected.shape):
        what = f"{array.dtype.str} {array.shape} found, {expected.dtype} {expected.shape} expected"
        raise DataError(_damaged(folder, file, what))
    return array


def _damaged(folder: Path, file: Path, what: str) -> str:
    return (
        f"{file} is damaged: {what}. Delete the folder {folder} (it is made from the raw files and "
        "can be made again), then prepare the data set anew."
    )
