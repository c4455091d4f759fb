"""Decode CIFAR-10 as published for Python: six pickled batches, read without running them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from train.data.archive import tar_files
from train.data.arrays import Dataset, Labels, Pixels, cut, make_dataset
from train.data.cifar_images import CLASSES, LIMIT, NAME
from train.data.download import Remote, verify
from train.data.errors import DataError
from train.data.unpickle import read_pickle

BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE = 32


def from_folder(folder: Path) -> Dataset:
    """The six batches as files of ``folder``.

    Raises:
        DataError: a file is no batch.
    """
    return _decode(lambda name: (folder / name).read_bytes(), folder)


def from_archive(archive: Path, remote: Remote) -> Dataset:
    """The six batches in the publisher's archive.

    Raises:
        DataError: another checksum than published, or something in it is no batch.
    """
    verify(archive, remote)
    found = {path.name: content for path, content in tar_files(archive, LIMIT)}
    missing = [name for name in BATCHES if name not in found]
    if missing:
        raise DataError(f"{archive}: {', '.join(missing)} not found in it; get the file anew.")
    return _decode(found.__getitem__, archive)


def _decode(read: Callable[[str], bytes], where: Path) -> Dataset:
    parts = [_batch(read(name), where / name) for name in BATCHES]
    images = np.concatenate([images for images, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    return make_dataset(NAME, CLASSES, *cut(images, labels, len(labels) - len(parts[-1][1])))


def _batch(content: bytes, path: Path) -> tuple[Pixels, Labels]:
    """Rows of 3,072 bytes, one plane for each colour -> [n, 32, 32, 3]."""
    found = read_pickle(content, path)
    if isinstance(found, dict):
        data, labels = (found.get(key, found.get(key.decode())) for key in (b"data", b"labels"))
        if (
            isinstance(data, np.ndarray)
            and data.dtype == np.uint8
            and data.shape[1:] == (3 * _SIDE * _SIDE,)
            and isinstance(labels, list)
            and all(isinstance(label, int) and 0 <= label < len(CLASSES) for label in labels)
        ):
            planes = data.reshape(-1, 3, _SIDE, _SIDE)
            return planes.transpose(0, 2, 3, 1), np.array(labels, np.int64)
    raise DataError(
        f"{path} is no CIFAR-10 batch: expected 'data', uint8 [n, 3072], and 'labels', a list of "
        "integers 0..9. Get the file anew."
    )
