"""scikit-learn's bundled digits: 1,797 real 8x8 scans, no download, for first runs and tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train.config import DATASETS
from train.data.arrays import Dataset, make_dataset
from train.data.download import Remote
from train.data.source import Source, key_of
from train.data.split import apportion, take


def find(root: Path, remotes: Sequence[Remote]) -> Source:
    """The data lie in scikit-learn itself; both arguments are for finders of other data sets."""
    return Source("digits", key_of("digits"), decode)


def decode() -> Dataset:
    """Values 0..16 become round(x * 255 / 16); 360 images are held out, stratified by class."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - a second to load, for this set only

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    labels = bunch.target.astype(np.int64)
    quotas = apportion(np.bincount(labels), DATASETS["digits"].validation_images)
    held_out, kept = take(labels, quotas)
    return make_dataset(
        "Digits",
        tuple("0123456789"),
        (images[kept], labels[kept]),
        (images[held_out], labels[held_out]),
    )
