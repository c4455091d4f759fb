"""What a confusion matrix says of each class. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from train.record.run import Classification, ClassScore

#: Dotted path in the record -> why a score may be null there.
REASONS = {
    "classification.classes.precision": "no validation image was predicted to be of this class",
    "classification.classes.recall": "no validation image is of this class",
    "classification.classes.f1": "no validation image is, or was predicted to be, of this class",
}


def classification(
    confusion: Sequence[Sequence[int]], names: Sequence[str], epoch: int
) -> Classification:
    """Scores per class, in the order of ``names``.

    With tp = confusion[i][i], p = the sum of column i and s = the sum of row i: precision tp / p,
    recall tp / s, F1 = 2 tp / (p + s), support s. Where a denominator is 0 the score is None;
    other tools write 0 there, which reads as a measured failure. F1 has a value wherever one of
    p and s is above 0: a class that is there and was never predicted has an F1 of 0.

    Args:
        confusion: images, [classes, classes]; row: true class, column: predicted class.
        names: of the classes.
        epoch: after which the evaluation was made.
    """
    predicted = [sum(column) for column in zip(*confusion, strict=True)]
    scores = tuple(
        _score(name, confusion[i][i], predicted[i], sum(confusion[i]))
        for i, name in enumerate(names)
    )
    return Classification(epoch=epoch, classes=scores, confusion=tuple(map(tuple, confusion)))


def _score(name: str, hits: int, predicted: int, support: int) -> ClassScore:
    return ClassScore(
        name=name,
        precision=_share(hits, predicted),
        recall=_share(hits, support),
        f1=_share(2 * hits, predicted + support),
        support=support,
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
