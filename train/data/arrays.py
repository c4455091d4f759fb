"""A data set as four arrays in memory, and the fingerprint that tells two of them apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.data.errors import DataError
from train.data.progress import goes_on

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

#: Names of the four arrays, in the order in which they are stored and hashed.
ARRAYS = ("train_x", "train_y", "validation_x", "validation_y")
_CHUNK = 1 << 24  # bytes hashed or written at once


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images uint8 [N, H, W, C] and labels int64 [N] for training and for validation."""

    name: str  # what reports show
    train_x: Pixels = field(repr=False)
    train_y: Labels = field(repr=False)
    validation_x: Pixels = field(repr=False)
    validation_y: Labels = field(repr=False)
    classes: tuple[str, ...]
    fingerprint: str  # sha256 over dtype, shape and bytes of the four arrays
    labelled: bool  # False: labels are random, and accuracy has no meaning
    remark: str = ""  # why these may not be the images that were wanted


def make_dataset(
    name: str,
    classes: Sequence[str],
    train: tuple[NDArray[np.generic], NDArray[np.generic]],
    validation: tuple[NDArray[np.generic], NDArray[np.generic]],
    *,
    labelled: bool = True,
) -> Dataset:
    """Check four arrays (images, labels, twice) and take their fingerprint.

    Raises:
        DataError: no uint8 images [N, H, W, C], no label per image, or a label without a class.
    """
    parts: list[NDArray[Any]] = []
    for part, (images, labels) in (("training", train), ("validation", validation)):
        _check(f"{name}: {part}", images, labels, len(classes))
        parts += [np.ascontiguousarray(images, "u1"), np.ascontiguousarray(labels, "<i8")]
    if parts[0].shape[1:] != parts[2].shape[1:]:
        raise DataError(
            f"{name}: training images are {parts[0].shape[1:]}, validation images "
            f"{parts[2].shape[1:]}; expected one shape"
        )
    train_x, train_y, validation_x, validation_y = parts
    return Dataset(
        name=name,
        train_x=train_x,
        train_y=train_y,
        validation_x=validation_x,
        validation_y=validation_y,
        classes=tuple(classes),
        fingerprint=fingerprint(parts),
        labelled=labelled,
    )


def _check(what: str, images: NDArray[np.generic], labels: NDArray[np.generic], k: int) -> None:
    if images.dtype != np.uint8 or images.ndim != 4:
        raise DataError(
            f"{what} images are {images.dtype} {images.shape}, expected uint8 [N, H, W, C]"
        )
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{what}: {len(images):,} images, but labels {labels.dtype} {labels.shape}; "
            "expected one integer for each image"
        )
    if not len(labels):
        raise DataError(f"{what}: no image, expected at least one")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= k:
        raise DataError(f"{what} labels are {low}..{high}, expected 0..{k - 1}")


def fingerprint(arrays: Sequence[NDArray[np.generic]]) -> str:
    """sha256 over name, dtype, shape and bytes (C order) of the four arrays, in ARRAYS' order."""
    digest = hashlib.sha256()
    for name, array in zip(ARRAYS, arrays, strict=True):
        digest.update(f"{name} {array.dtype.str} {list(array.shape)}\n".encode())
        for chunk in chunks(array):
            digest.update(chunk)
    return digest.hexdigest()


def chunks(array: NDArray[np.generic]) -> Iterator[memoryview]:
    """The bytes of a C-contiguous array, a few MB at a time."""
    view = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(view), _CHUNK):
        goes_on(f"{start:,} of {len(view):,} bytes hashed or written")
        yield view[start : start + _CHUNK]


def class_labels(counts: Sequence[int]) -> Labels:
    """Labels of images that lie class after class."""
    return np.repeat(np.arange(len(counts), dtype=np.int64), counts)


def cut(images: Pixels, labels: Labels, at: int) -> tuple[tuple[Pixels, Labels], ...]:
    """(images, labels) before and from position ``at``."""
    return (images[:at], labels[:at]), (images[at:], labels[at:])
