"""How data sets are named, and what is known of each before it is loaded.

Imports the standard library alone, as the preflight must, which reads it in any image.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

#: ``folder:PATH`` is a data set, too: a folder of images.
FOLDER_PREFIX = "folder:"
#: ``arrays:FILE.npz@SHA256`` is one, too: a file of arrays.
ARRAYS_PREFIX = "arrays:"
#: Side in pixels of a folder's images where nothing is said.
FOLDER_SIDE = 64


class DatasetFacts(NamedTuple):
    """Facts of a data set whose content is fixed by its publisher."""

    train_images: int
    validation_images: int
    shape: tuple[int, int, int]  # height, width, channels
    classes: int
    characters: bool = False  # a mirrored image is another character, or none

    @property
    def sizes(self) -> tuple[int, int, tuple[int, int, int], int]:
        """What its arrays must have: images of both splits, shape of an image, classes."""
        return self.train_images, self.validation_images, self.shape, self.classes


DATASETS: dict[str, DatasetFacts] = {
    # 1,797 images; the stratified split (8 of 10 to training) is ours, with a fixed seed
    "digits": DatasetFacts(1437, 360, (8, 8, 1), 10, characters=True),
    "cifar10": DatasetFacts(50_000, 10_000, (32, 32, 3), 10),
    "fashion_mnist": DatasetFacts(60_000, 10_000, (28, 28, 1), 10),
    "mnist": DatasetFacts(60_000, 10_000, (28, 28, 1), 10, characters=True),
    # random pixels and labels of CIFAR's shape, for throughput only
    "synthetic": DatasetFacts(50_000, 10_000, (32, 32, 3), 10),
}


def place_of(written: str, data: Path) -> Path:
    """Where a file or folder is that a config names: ``~`` is the home folder, and what is relative
    lies in the folder of the data sets, the same for all ranks wherever they are started."""
    return data / os.path.expanduser(written)  # noqa: PTH111  (~ of nobody is a missing file)
