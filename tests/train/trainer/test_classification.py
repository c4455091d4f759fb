"""Scores per class against scikit-learn's, computed from labels and predictions themselves."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import classification_report

from train.record.measurements import Classification
from train.trainer.classification import classification, count


def scores(true: Sequence[int], predicted: Sequence[int], classes: int) -> Classification:
    names = [f"class {n}" for n in range(classes)]
    total = count(true[:2], predicted[:2], classes) + count(true[2:], predicted[2:], classes)
    return classification(total, names, 5)


def sklearn_says(
    true: Sequence[int], predicted: Sequence[int], classes: int
) -> list[tuple[float | None, ...]]:
    """What has no value is nan there, and None here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = classification_report(
            true, predicted, labels=range(classes), output_dict=True, zero_division=np.nan
        )
    return [
        tuple(None if np.isnan(value := report[str(n)][part]) else pytest.approx(value, abs=1e-15)
              for part in ("precision", "recall", "f1-score", "support"))
        for n in range(classes)
    ]  # fmt: skip


@pytest.mark.parametrize("classes", [4, 101])
@pytest.mark.parametrize(
    ("true", "predicted"),
    [
        np.random.default_rng(0).integers(0, 4, (2, 300)),
        ([0, 0, 1, 2, 3], [1, 1, 0, 3, 2]),  # nothing right
        ([0, 1, 2, 2], [0, 0, 0, 0]),  # one class for everything
        ([0, 0, 1, 1], [0, 2, 2, 1]),  # 2: predicted, not there; 3: neither
        ([3], [3]),
    ],
)
def test_scores_are_those_of_sklearn(
    true: Sequence[int], predicted: Sequence[int], classes: int
) -> None:
    found = scores(true, predicted, classes)
    ours = [(c.precision, c.recall, c.f1, c.support) for c in found.classes]
    assert ours == sklearn_says(true, predicted, classes)
    assert Classification.model_validate_json(found.model_dump_json()) == found


def test_a_matrix_of_1000_classes_would_be_a_million_numbers_in_each_record() -> None:
    true, predicted = np.random.default_rng(0).integers(0, 1000, (2, 5000))
    found = scores(true, predicted, 1000)
    assert found.confusion is None and len(found.model_dump_json()) < 150_000
    assert scores([0, 0, 1], [0, 1, 1], 2).confusion == ((1, 1), (0, 1)), "row: the true class"
