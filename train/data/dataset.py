"""A data set: four arrays in memory, where they come from, and the form in which they are kept.

The prepared form is a folder with four .npy files and meta.json, complete or absent. Its name is
made of the raw files that it was decoded from; a fingerprint of the arrays tells two sets apart.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from train.config.frozen import Frozen
from train.config.run import explain
from train.data.waiting import progress
from train.errors import DataError
from train.record.atomic import flush_to_disk, write_atomically

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Part = tuple[NDArray[np.generic], NDArray[np.generic]]  # images and labels

#: Names of the four arrays, in the order in which they are stored and hashed.
ARRAYS = ("train_x", "train_y", "validation_x", "validation_y")
_CHUNK = 1 << 24  # bytes hashed or written at once
_PIXELS_AT_ONCE = 1 << 20  # which become eight bytes each while they are counted
#: Raised whenever the same raw files would give other arrays; prepared forms of old stay unused.
FORMAT = 1
META = "meta.json"
_STALE_S = 24 * 3600.0


@dataclass(frozen=True, eq=False)
class ChosenImages:
    """Some of the images of an array that is mapped into memory, copied when they are asked for."""

    images: Pixels | ChosenImages
    rows: NDArray[np.int64]
    dtype = np.dtype(np.uint8)

    def __getitem__(self, of: Any) -> Pixels:
        return self.images[self.rows[of]]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.images.shape[1:]


class ChannelStatistics(NamedTuple):
    """Per channel, of pixels from 0 to 1; the deviation is the root of the biased variance."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images uint8 [N, H, W, C] and labels int64 [N] for training and for validation."""

    name: str  # what reports show
    train_x: Pixels | ChosenImages = field(repr=False)
    train_y: Labels = field(repr=False)
    validation_x: Pixels | ChosenImages = field(repr=False)
    validation_y: Labels = field(repr=False)
    classes: tuple[str, ...]
    fingerprint: str  # sha256 over dtype, shape and bytes of the four arrays
    channels: ChannelStatistics | None = None  # of all training images; None: not counted yet

    @property
    def arrays(self) -> list[Any]:
        return [getattr(self, name) for name in ARRAYS]


def make_dataset(name: str, classes: Sequence[str], train: Part, validation: Part) -> Dataset:
    """Of images uint8 [N, H, W, C] and labels [N] of checked content."""
    arrays: list[Any] = [
        np.ascontiguousarray(part, kind)
        for pair in (train, validation)
        for part, kind in zip(pair, ("u1", "<i8"), strict=True)
    ]
    named = dict(zip(ARRAYS, arrays, strict=True))
    return Dataset(name, **named, classes=tuple(classes), fingerprint=fingerprint(arrays))


def fingerprint(arrays: Sequence[NDArray[Any] | ChosenImages]) -> str:
    """sha256 over name, dtype, shape and bytes (C order) of the four arrays, in ARRAYS' order."""
    digest = hashlib.sha256()
    for name, array in zip(ARRAYS, arrays, strict=True):
        digest.update(f"{name} {array.dtype.str} {list(array.shape)}\n".encode())
        for chunk in chunks(array):
            digest.update(chunk)
    return digest.hexdigest()


def chunks(array: NDArray[Any] | ChosenImages) -> Iterator[memoryview]:
    """The bytes of an array, in C order, a few MB at a time."""
    count, *one = array.shape
    step = max(1, _CHUNK // (math.prod(one) * array.dtype.itemsize))
    for start in range(0, count, step):
        progress(f"{start:,} of {count:,} rows hashed or written")
        yield array[start : start + step].reshape(-1).view(np.uint8).data


def channel_statistics(images: Pixels | ChosenImages, used: NDArray[np.int64]) -> ChannelStatistics:
    """Of those of uint8 images [N, H, W, C] that ``used`` names, at least one: from how often each
    of the 256 values occurs, in whole numbers."""
    height, width, channels = images.shape[1:]
    counts = np.zeros((channels, 256), np.int64)
    step = max(1, _PIXELS_AT_ONCE // (height * width))
    for start in range(0, len(used), step):
        progress(f"{start:,} of {len(used):,} images counted")
        part = images[used[start : start + step]]
        for channel in range(channels):
            counts[channel] += np.bincount(part[..., channel].ravel(), minlength=256)
    values = np.arange(256)
    sums, squares = (counts @ values).tolist(), (counts @ values**2).tolist()
    number = len(used) * height * width
    # N sum x^2 - (sum x)^2 in Python's whole numbers: exact, and 0 for a constant channel
    spreads = [number * q - s * s for s, q in zip(sums, squares, strict=True)]
    return ChannelStatistics(
        mean=tuple(s / (255 * number) for s in sums),
        deviation=tuple(math.sqrt(spread) / (255 * number) for spread in spreads),
    )


def cut(images: Pixels, labels: Labels, at: int) -> tuple[tuple[Pixels, Labels], ...]:
    """(images, labels) before and from position ``at``."""
    return (images[:at], labels[:at]), (images[at:], labels[at:])


class Source(NamedTuple):
    folder_name: str  # of the prepared form; another name, another content
    decode: Callable[[], Dataset] | None  # None: its raw files are not there


def name_of(slug: str, *content: object) -> str:
    """A folder's name with a hash over JSON values and the format version."""
    text = json.dumps([FORMAT, *content], separators=(",", ":"))
    return f"{slug}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Meta(Frozen, extra="ignore"):  # earlier versions wrote more
    """meta.json, written last: what a data set has besides its arrays."""

    name: str
    classes: tuple[str, ...]
    fingerprint: str
    channels: ChannelStatistics | None = None  # of a form of an earlier version


def write_prepared(folder: Path, data: Dataset) -> None:
    """Build the prepared form next to ``folder``, then rename it into place; if another process was
    faster, its result is kept. A build that was killed leaves a hidden folder, which a later one
    removes after a day. Raises OSError (no space, not writable): nothing is then left."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{folder.name}."
    for left in folder.parent.glob(f"{prefix}*"):
        with suppress(FileNotFoundError):  # another process has just renamed its own into place
            if time.time() - left.stat().st_mtime > _STALE_S:
                shutil.rmtree(left, ignore_errors=True)
    building = folder.parent / f"{prefix}{uuid.uuid4().hex}"
    try:
        building.mkdir()
        for name, array in zip(ARRAYS, data.arrays, strict=True):
            _write(building / f"{name}.npy", array)
        counted = channel_statistics(data.train_x, np.arange(len(data.train_y)))
        meta = Meta(
            name=data.name, classes=data.classes, fingerprint=data.fingerprint, channels=counted
        )
        write_atomically(building / META, meta.model_dump_json(indent=2))
        try:
            building.rename(folder)
        except OSError as error:
            if folder.exists() and not (folder / META).exists():
                raise _damaged(folder, folder / META, "not there") from error
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _write(path: Path, array: NDArray[np.generic]) -> None:
    """As np.save does, which hides the reason when the disk is full."""
    with path.open("wb") as out:
        npy.write_array_header_1_0(out, npy.header_data_from_array_1_0(array))  # type: ignore[no-untyped-call]
        for chunk in chunks(array):
            out.write(chunk)
        flush_to_disk(out)


def read_prepared(folder: Path) -> Dataset:
    """Images stay on disk and are mapped into memory, shared by the ranks of a node.

    Raises:
        DataError: a file is not there, or damaged.
        OSError: a file cannot be read now.
    """
    file, arrays = folder / META, dict[str, Any]()
    try:
        meta = Meta.model_validate_json(file.read_bytes())
        for name in ARRAYS:
            file = folder / f"{name}.npy"
            arrays[name] = _mapped(file)
    except (FileNotFoundError, EOFError, ValueError) as error:
        raise _damaged(folder, file, explain(error).strip()) from error
    for name in ("train_y", "validation_y"):
        arrays[name] = np.array(arrays[name], np.int64)
    return Dataset(**dict(meta), **arrays)


def _mapped(path: Path) -> NDArray[Any]:
    """As np.load does, which opens the file three times."""
    with path.open("rb") as file:
        if (version := npy.read_magic(file)) != (1, 0):  # type: ignore[no-untyped-call]
            raise ValueError(f"version {version} of the format, expected (1, 0)")
        shape, by_columns, kind = npy.read_array_header_1_0(file)  # type: ignore[no-untyped-call]
        order: Literal["F", "C"] = "F" if by_columns else "C"
        found = np.memmap(file, kind, "r", file.tell(), shape, order)
        return np.asarray(found)  # a plain view: NumPy's memmap class makes each slice dearer


def _damaged(folder: Path, file: Path, what: str) -> DataError:
    return DataError(
        f"{file} is damaged: {what}. Delete the folder {folder} (it is made from the raw files and "
        "can be made again), then prepare the data set again."
    )
