"""What the counts of an evaluation say of each class. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from train.record.measurements import MOST_CLASSES, Classification, ClassScore

Integers = npt.NDArray[np.int64]


def count(labels: Any, predicted: Any, classes: int) -> Integers:
    """int64 vector, to be added up over images: of each class its images, its predictions and its
    hits, 3 x classes; then the confusion matrix, row by row, of at most ``MOST_CLASSES`` classes.
    """
    true, guessed = np.asarray(labels, np.int64), np.asarray(predicted, np.int64)
    parts = [(true, classes), (guessed, classes), (true[true == guessed], classes)]
    if classes <= MOST_CLASSES:
        parts.append((true * classes + guessed, classes**2))
    return np.concatenate([np.bincount(part, minlength=size) for part, size in parts])


def classification(counts: Integers, names: Sequence[str], epoch: int) -> Classification:
    """Scores per class, in the order of ``names``.

    Of a class with tp hits, p predictions and s images: precision tp / p, recall tp / s, F1 =
    2 tp / (p + s), support s. Where a denominator is 0 the score is None; other tools write 0
    there, which reads as a measured failure. F1 has a value wherever one of p and s is above 0: a
    class that is there and was never predicted has an F1 of 0.

    counts: of :func:`count`, over all images of the evaluation that was made after ``epoch``.
    """
    of_class, matrix = np.split(counts, [3 * len(names)])
    scores = tuple(
        ClassScore(
            name=name,
            precision=_share(hits, predicted),
            recall=_share(hits, support),
            f1=_share(2 * hits, predicted + support),
            support=support,
        )
        for name, support, predicted, hits in zip(
            names, *of_class.reshape(3, -1).tolist(), strict=True
        )
    )
    confusion = tuple(map(tuple, matrix.reshape(-1, len(names)).tolist()))
    return Classification(epoch=epoch, classes=scores, confusion=confusion or None)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
