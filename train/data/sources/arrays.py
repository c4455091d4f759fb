"""arrays:FILE.npz, a data set of the user's own: x_train, y_train, x_test and y_test, as in Keras'
own files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.config.datasets import dataset_slug, parse_arrays, place_of
from train.data.dataset import Dataset, Source, make_dataset, name_of
from train.data.sources.download import sha256_of
from train.data.waiting import say
from train.errors import DataError

#: What NumPy and zipfile raise on damaged, encrypted and other files, and on pickled objects.
_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, AttributeError, RuntimeError,
)  # fmt: skip
_NAMES = ("x_train", "y_train", "x_test", "y_test")


def find(dataset: str, root: Path) -> Source:
    """The file by its content, as it is now if ``dataset`` has no sha256: what was prepared of it
    is used, whatever became of the file."""
    path, sha256 = parse_arrays(dataset)
    file = place_of(path, root)
    if sha256 is None:
        sha256 = sha256_of(_present(file))
    name = name_of(f"arrays_{dataset_slug(dataset)}", "arrays", sha256)
    return Source(name, partial(_decode, file, sha256))


def _present(file: Path) -> Path:
    if not file.is_file():
        raise DataError(
            f"no file {file.absolute()}: expected arrays in a .npz file, in the data folder unless "
            "its whole path is given. Put it there, or name another data folder with DATA=DIR"
        )
    return file


def _decode(file: Path, sha256: str) -> Dataset:
    say(f"reading {_present(file)}")
    if (found := sha256_of(file)) != sha256:
        raise DataError(
            f"{file} is another file than the config names: sha256 found {found}, expected "
            f"{sha256}. Put that file there, or run make sweep, which plans cells for the new one"
        )
    try:
        with np.load(file, allow_pickle=False) as archive:
            # NumPy returns the bytes of what is no array
            arrays = {name: np.asarray(archive[name]) for name in _NAMES if name in archive}
    except _UNREADABLE as error:
        raise DataError(f"{file} cannot be read as arrays without objects: {error}") from error
    if problem := next((text for wrong, text in _problems(arrays) if wrong), None):
        raise DataError(f"{file}: {problem}")
    parts = ((arrays[f"x_{part}"], arrays[f"y_{part}"]) for part in ("train", "test"))
    # images without an axis of channels have one channel
    train, test = ((x.reshape(*x.shape[:3], -1), y.reshape(-1)) for x, y in parts)
    classes = [str(number) for number in range(int(train[1].max()) + 1)]
    return make_dataset(file.stem, classes, train, test)


def _problems(arrays: Mapping[str, NDArray[Any]]) -> Iterator[tuple[bool, str]]:
    """Whether it is so, and the sentence; each row counts on those before it."""
    missing = [name for name in _NAMES if name not in arrays]
    yield bool(missing), f"{', '.join(missing)} not found, expected {', '.join(_NAMES)}"
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        images, n = f"x_{part}: found {x.dtype} {list(x.shape)}, expected", len(x) if x.ndim else 0
        yield x.dtype != np.uint8, f"{images} pixels as uint8, 0 to 255"
        yield x.ndim not in (3, 4), f"{images} [n, h, w] or [n, h, w, channels]"
        yield 0 in x.shape, f"{images} at least one image of at least one pixel"
        first = x.ndim == 4 and x.shape[1] in (1, 3, 4) and x.shape[3] > 4
        yield first, f"{images} [n, h, w, channels]: save x_{part}.transpose(0, 2, 3, 1)"
        labels = f"y_{part}: found {y.dtype} {list(y.shape)}, expected"
        yield y.dtype.kind not in "iu", f"{labels} integers"
        yield y.shape not in ((n,), (n, 1)), f"{labels} one label for each of {n:,} images"
    train, test = (list(arrays[name].shape[1:]) for name in ("x_train", "x_test"))
    yield train != test, f"images of x_train are {train}, of x_test {test}: expected one size"
    classes, tested = (np.unique(arrays[name]) for name in ("y_train", "y_test"))
    k = len(classes)
    found = f"y_train: {k:,} classes found, labels {classes[0]} to {classes[-1]}"
    gap = k < 2 or not np.array_equal(classes, np.arange(k))
    yield gap, f"{found}: expected at least two, 0, 1, ... without a gap"
    found = f"y_test: labels {tested[0]} to {tested[-1]} found"
    yield not np.isin(tested, classes).all(), f"{found}: expected those of y_train, 0 to {k - 1}"
