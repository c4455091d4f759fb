"""Two data sets that need no download: scikit-learn's digits, 1,797 scans of 8 x 8 pixels for first
runs and tests, and random pixels and labels of CIFAR's shape, for throughput only.
"""

from __future__ import annotations

import math

import numpy as np

from train.config.datasets import DATASETS
from train.data.dataset import Dataset, Labels, Pixels, make_dataset
from train.data.sampling import apportion, split_by_class

_SEED = 1330


def decode_digits() -> Dataset:
    """Values 0..16 become round(x * 255 / 16); 360 images are held out, stratified by class."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - a second to load, for this set only

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., np.newaxis]
    labels = bunch.target.astype(np.int64)
    quotas = apportion(np.bincount(labels), DATASETS["digits"].validation_images)
    held_out, kept = split_by_class(labels, quotas)
    train, validation = ((images[part], labels[part]) for part in (kept, held_out))
    return make_dataset("Digits", tuple("0123456789"), train, validation)


def decode_synthetic() -> Dataset:
    facts = DATASETS["synthetic"]
    stream = np.random.PCG64(_SEED)

    def draw(n: int) -> tuple[Pixels, Labels]:
        count = n * math.prod(facts.shape)
        words = stream.random_raw(-(-count // 8)).astype("<u8", copy=False)
        pixels = words.view(np.uint8)[:count].reshape(n, *facts.shape)
        labels = stream.random_raw(n) % np.uint64(facts.classes)
        return pixels, labels.astype(np.int64)

    train, validation = draw(facts.train_images), draw(facts.validation_images)
    classes = tuple(str(number) for number in range(facts.classes))
    return make_dataset("Synthetic", classes, train, validation)
