"""Random pixels and labels of CIFAR's shape, for throughput only: nothing can be learnt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train.config import DATASETS
from train.data.arrays import Dataset, Labels, Pixels, make_dataset
from train.data.download import Remote
from train.data.source import Source, key_of

_SEED = 1330


def find(root: Path, remotes: Sequence[Remote]) -> Source:
    """Made, not found; both arguments are for finders of other data sets."""
    return Source("synthetic", key_of("synthetic", list(DATASETS["synthetic"])), decode)


def decode() -> Dataset:
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
    return make_dataset("Synthetic", classes, train, validation, labelled=False)
