"""MNIST and Fashion-MNIST: four IDX files each, or the .npz of Keras.

The two share file names and shapes, so IDX files count only in a folder of the set's own name:
mnist/ or fashion_mnist/, also in torchvision's MNIST/raw/ or FashionMNIST/raw/, and at last where
a package of the system puts them. What counts is the IDX data, however they are compressed: a
header that says type and dimensions, then the bytes.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.data.dataset import Dataset, Pixels, Source, key_of, make_dataset, stat_key
from train.data.sources.archive import read_unpacked
from train.data.sources.download import Remote, verify
from train.errors import DataError

_PARTS = ("x_train", "y_train", "x_test", "y_test")
_FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip
_LIMIT = 1 << 28  # bytes; the largest of the known files has 47 MB
_UINT8 = 8  # the type's code


@dataclass(frozen=True)
class Family:
    """What tells one set of this shape from the other."""

    slug: str  # also the folder of its files, and the name of its .npz
    name: str
    torchvision: str
    classes: tuple[str, ...]
    npz: Remote | None = None  # as published by Keras
    system: Path | None = None  # where a distribution's package puts the IDX files


MNIST = Family(
    "mnist", "MNIST", "MNIST", tuple("0123456789"),
    Remote(
        "mnist.npz",
        ("https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",),
        11_490_434,
        "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",  # Keras' source
    ),
)  # fmt: skip
FASHION = Family(
    "fashion_mnist", "Fashion-MNIST", "FashionMNIST",
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
     "Ankle boot"),
    system=Path("/usr/share/datasets/fashion-mnist"),  # Debian's dataset-fashion-mnist
)  # fmt: skip


def find(family: Family, root: Path, remotes: Sequence[Remote]) -> Source | None:
    """The first form that is there, or None. ``remotes``: the four files as published."""
    own, raw = root / family.slug, Path(family.torchvision) / "raw"
    for folder in (own, own / "raw", root / raw, own / raw):
        if source := _idx_in(folder, family, remotes):
            return source
    for file in (folder / f"{family.slug}.npz" for folder in (root, own)):
        if file.is_file():
            key = key_of("npz", family.npz.sha256 if family.npz else stat_key([file]))
            return Source(family.slug, key, partial(_from_npz, family, file))
    return _idx_in(family.system, family, remotes) if family.system else None


def published_keys(family: Family, remotes: Sequence[Remote]) -> tuple[str, ...]:
    """Of prepared forms whose content was compared with what was published: IDX, then .npz."""
    idx = key_of("idx", [remote.sha256 for remote in remotes], [])
    return (idx, key_of("npz", family.npz.sha256)) if family.npz else (idx,)


def _idx_in(folder: Path, family: Family, remotes: Sequence[Remote]) -> Source | None:
    files = [file for name in _FILES if (file := _packed_or_not(folder, name))]
    if len(files) < len(_FILES):
        return None
    # their content is checked, so they are known by that, not by their dates
    decode = partial(_from_idx, family, files, remotes)
    return Source(family.slug, published_keys(family, remotes)[0], decode)


def _packed_or_not(folder: Path, name: str) -> Path | None:
    places = (folder / f"{name}.gz", folder / name)
    return next((place for place in places if place.is_file()), None)


def _from_idx(family: Family, files: Sequence[Path], remotes: Sequence[Remote]) -> Dataset:
    told = zip(files, (3, 1, 3, 1), remotes, strict=True)
    return _dataset(family, [read_idx(file, ndim, remote) for file, ndim, remote in told])


def _from_npz(family: Family, file: Path) -> Dataset:
    if family.npz:
        verify(file, family.npz)
    try:
        with np.load(file, allow_pickle=False) as found:
            arrays = [found[part] for part in _PARTS]
    except KeyError as error:
        raise DataError(f"{file}: {error.args[0]}; expected {', '.join(_PARTS)}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise DataError(f"{file} is truncated or damaged ({error}); get the file anew.") from error
    return _dataset(family, arrays)


def _dataset(family: Family, arrays: Sequence[NDArray[Any]]) -> Dataset:
    train_x, train_y, test_x, test_y = arrays
    train, validation = (train_x[..., np.newaxis], train_y), (test_x[..., np.newaxis], test_y)
    return make_dataset(family.name, family.classes, train, validation)


def read_idx(path: Path, ndim: int, published: Remote | None = None) -> Pixels:
    """An uint8 array of ``ndim`` dimensions from an IDX file that may be compressed.

    ``published``: what must be in it, however it is compressed.

    The format (LeCun): two zero bytes, type, number of dimensions, then each dimension as a
    big-endian 32-bit integer, then the data in C order.

    Raises:
        DataError: truncated, damaged, another type or number of dimensions, more or fewer bytes
            than the dimensions say, or other content than was published.
    """
    content = read_unpacked(path, _LIMIT)
    head = content[:4]
    if head != bytes([0, 0, _UINT8, ndim]):
        raise DataError(
            f"{path}: starts with {head.hex(' ') or 'nothing'}, expected 00 00 08 {ndim:02x}: an "
            f"IDX file of bytes in {ndim} dimensions. Get the file anew."
        )
    start = 4 + 4 * ndim
    shape = tuple(
        int(n) for n in np.frombuffer(content[4:start], ">u4", len(content[4:start]) // 4)
    )
    expected = start + math.prod(shape)
    if len(shape) != ndim or len(content) != expected:
        raise DataError(
            f"{path}: {len(content):,} bytes found, {expected:,} expected for dimensions "
            f"{list(shape)}: truncated or altered. Get the file anew."
        )
    found = hashlib.sha256(content).hexdigest()
    if published is not None and found != published.inner:
        raise DataError(
            f"{path} holds other data than were published: sha256 of the IDX data found {found}, "
            f"expected {published.inner}. It was left as it is; delete it or replace it by the "
            f"file from {published.urls[0]}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)
