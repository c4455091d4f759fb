"""What the counts of an evaluation say of each class. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from train.record.measurements import MOST_CLASSES, Classification, ClassScore

Integers = npt.NDArray[np.int64]


class ClassCounts(NamedTuple):
    """Images of each class."""

    support: tuple[int, ...]
    predicted: tuple[int, ...]
    hits: tuple[int, ...]
    # row: true class, column: predicted class; None beyond MOST_CLASSES classes
    confusion: tuple[tuple[int, ...], ...] | None


def count(labels: Any, predicted: Any, classes: int) -> Integers:
    """int64, to be added up over images: [classes, classes], row: true class, column: predicted
    class; beyond ``MOST_CLASSES`` classes [3, classes]: support, predicted, hits."""
    true, guessed = np.asarray(labels, np.int64), np.asarray(predicted, np.int64)
    if classes <= MOST_CLASSES:
        pairs = np.bincount(true * classes + guessed, minlength=classes**2)
        return pairs.reshape(classes, classes)
    parts = (true, guessed, true[true == guessed])
    return np.stack([np.bincount(part, minlength=classes) for part in parts])


def class_counts(total: Integers, classes: int) -> ClassCounts:
    """total: of :func:`count`, over all images."""
    confusion = None
    if classes <= MOST_CLASSES:
        confusion = tuple(map(tuple, total.tolist()))
        total = np.stack([total.sum(axis=1), total.sum(axis=0), np.diagonal(total)])
    support, predicted, hits = map(tuple, total.tolist())
    return ClassCounts(support, predicted, hits, confusion)


def classification(counts: ClassCounts, names: Sequence[str], epoch: int) -> Classification:
    """Scores per class, in the order of ``names``.

    Of a class with tp hits, p predictions and s images: precision tp / p, recall tp / s, F1 =
    2 tp / (p + s), support s. Where a denominator is 0 the score is None; other tools write 0
    there, which reads as a measured failure. F1 has a value wherever one of p and s is above 0: a
    class that is there and was never predicted has an F1 of 0.

    Args:
        counts: of the evaluation that was made after ``epoch``.
    """
    scores = tuple(
        ClassScore(
            name=name,
            precision=_share(hits, predicted),
            recall=_share(hits, support),
            f1=_share(2 * hits, predicted + support),
            support=support,
        )
        for name, support, predicted, hits in zip(names, *counts[:3], strict=True)
    )
    return Classification(epoch=epoch, classes=scores, confusion=counts.confusion)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
