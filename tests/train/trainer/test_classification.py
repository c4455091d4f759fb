"""Scores per class against scikit-learn's, computed from labels and predictions themselves."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import classification_report

from tests.builders import config, record
from train.record.run import Classification, null_paths
from train.trainer.classification import REASONS, classification

NAMES = ("ant", "bee", "cat", "dog")


def matrix(true: Sequence[int], predicted: Sequence[int], classes: int) -> list[list[int]]:
    rows = [[0] * classes for _ in range(classes)]
    for a, b in zip(true, predicted, strict=True):
        rows[a][b] += 1
    return rows


def sklearn_says(true: Sequence[int], predicted: Sequence[int]) -> list[tuple[float | None, ...]]:
    """What has no value is nan there, and None here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = classification_report(
            true, predicted, labels=range(len(NAMES)), target_names=NAMES, output_dict=True,
            zero_division=np.nan,
        )  # fmt: skip
    return [
        tuple(None if np.isnan(report[name][part]) else report[name][part]
              for part in ("precision", "recall", "f1-score", "support"))
        for name in NAMES
    ]  # fmt: skip


def ours(found: Classification) -> list[tuple[float | None, ...]]:
    return [(c.precision, c.recall, c.f1, c.support) for c in found.classes]


@pytest.mark.parametrize(
    ("true", "predicted"),
    [
        np.random.default_rng(0).integers(0, 4, (2, 300)),
        ([0, 1, 2, 3], [0, 1, 2, 3]),
        ([0, 0, 1, 2, 3], [1, 1, 0, 3, 2]),  # nothing right
        ([0, 1, 2, 2], [0, 0, 0, 0]),  # one class for everything
        ([0, 0, 1, 1], [0, 2, 2, 1]),  # cat: predicted, not there; dog: neither
        ([3], [3]),
    ],
)  # fmt: skip
def test_scores_are_those_of_sklearn(true: Sequence[int], predicted: Sequence[int]) -> None:
    found = classification(matrix(true, predicted, 4), NAMES, 1)
    for own, theirs in zip(ours(found), sklearn_says(true, predicted), strict=True):
        assert [x is None for x in own] == [x is None for x in theirs]
        assert [x for x in own if x is not None] == pytest.approx(
            [x for x in theirs if x is not None], abs=1e-15
        )
    assert [c.name for c in found.classes] == list(NAMES)


def test_what_cannot_be_known_is_null_and_not_zero() -> None:
    bee, cat, dog = classification(
        [[4, 0, 1, 0], [2, 0, 0, 0], [0] * 4, [0] * 4], NAMES, 3
    ).classes[1:]
    assert (bee.precision, bee.recall, bee.f1, bee.support) == (None, 0.0, 0.0, 2)
    assert (cat.precision, cat.recall, cat.f1, cat.support) == (0.0, None, 0.0, 0)
    assert (dog.precision, dog.recall, dog.f1, dog.support) == (None, None, None, 0)


def test_each_null_of_a_record_has_its_reason() -> None:
    """A class that is neither there nor predicted has all nulls that there can be."""
    found = classification([[1, 0], [0, 0]], ("a", "b"), 2)
    whole = record(config(), classification=found)
    nulls = {path for path in null_paths(whole) if path.startswith("classification")}
    assert nulls == set(REASONS)


def test_the_matrix_is_kept_in_plain_integers() -> None:
    """numpy's own are no JSON."""
    found = classification(np.array([[3, 1], [0, 2]]), ("a", "b"), 5)
    assert found.confusion == ((3, 1), (0, 2)) and found.epoch == 5
    assert type(found.confusion[0][0]) is int and type(found.classes[0].support) is int
    assert Classification.model_validate_json(found.model_dump_json()) == found
