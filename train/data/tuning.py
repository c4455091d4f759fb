"""A data set to search settings on: what it validates on is taken from its training images, so that
the published held-out images stay unseen until the settings are fixed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from train.data.arrays import Dataset, make_dataset
from train.data.split import apportion, take


def for_tuning(data: Dataset) -> Dataset:
    """The training images alone, a tenth of them (stratified, always the same) to validate on."""
    counts = np.bincount(data.train_y, minlength=len(data.classes)).astype(np.int64)
    checked, trained = take(data.train_y, apportion(counts, len(data.train_y) // 10))
    made = make_dataset(
        f"{data.name}, a tenth of its training images to validate on",
        data.classes,
        (data.train_x[trained], data.train_y[trained]),
        (data.train_x[checked], data.train_y[checked]),
        labelled=data.labelled,
    )
    return replace(made, remark=data.remark)
