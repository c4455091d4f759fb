"""MNIST and Fashion-MNIST: four IDX files each, as published or as Debian packages them.

The two share names of files, so each has a folder of its own: mnist/ and fashion_mnist/.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from train.data.dataset import Dataset, Pixels, Source, make_dataset
from train.data.sources.download import PUBLISHED, Remote, verify


@dataclass(frozen=True)
class Family:
    """What one set of this kind has of its own."""

    slug: str  # also the folder of its files
    name: str
    classes: tuple[str, ...]
    prepared: str  # folder of the prepared form; another one if its arrays change
    system: Path | None = None  # where a distribution's package puts the files


MNIST = Family("mnist", "MNIST", tuple("0123456789"), "mnist-6f66c86c2394")
FASHION = Family(
    "fashion_mnist", "Fashion-MNIST",
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
     "Ankle boot"),
    "fashion_mnist-7abf1aa9a69a",
    Path("/usr/share/datasets/fashion-mnist"),  # Debian's dataset-fashion-mnist
)  # fmt: skip


def find(family: Family, root: Path) -> tuple[Source]:
    remotes = PUBLISHED[family.slug]
    for folder in filter(None, (root / family.slug, family.system)):
        if all((folder / remote.name).is_file() for remote in remotes):
            return (Source(family.prepared, partial(_decode, family, folder, remotes)),)
    return (Source(family.prepared, None),)


def _decode(family: Family, folder: Path, remotes: Sequence[Remote]) -> Dataset:
    arrays = [read_idx(folder / remote.name, remote) for remote in remotes]
    train_x, train_y, test_x, test_y = arrays
    train, validation = (train_x[..., np.newaxis], train_y), (test_x[..., np.newaxis], test_y)
    return make_dataset(family.name, family.classes, train, validation)


def read_idx(path: Path, published: Remote) -> Pixels:
    """The array in an IDX file (LeCun): two zero bytes, type, number of dimensions, each dimension
    as a big-endian 32-bit integer, then the data in C order.
    """
    verify(path, published)
    with gzip.open(path) as file:
        content = file.read()
    shape = np.frombuffer(content, ">u4", content[3], offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + shape.nbytes).reshape(shape)
