"""Learned or diverged: each rule on both sides of its bound."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import config, epoch
from train.trainer.divergence import divergence

OF = config()
LOSS_BOUND = 1.2 * math.log(10)


def last(loss: float | None = 0.5, train: float | None = 0.9, val: float | None = 0.9, **more):
    return epoch(
        7, OF, train_loss=loss, train_accuracy=train, validation_accuracy=val, **more
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (last(), None),
        (last(loss=LOSS_BOUND - 1e-6), None),
        (last(loss=LOSS_BOUND + 1e-6), r"1\.2 x ln\(10\) = 2\.76"),
        (last(train=0.149, val=0.149), "below 0.150 where chance is 0.100"),
        (last(train=0.151, val=0.10), None),  # learned, and does not generalise: no divergence
        (last(train=0.10, val=0.151), None),
        (last(loss=None), "training loss is not finite"),
        (last(validation_loss=None), "validation loss is not finite"),
    ],
)
def test_rules_for_ten_classes(found, words) -> None:
    error = divergence(found, 10, labelled=True)
    if words is None:
        assert error is None
    else:
        assert error is not None
        assert re.search(words, error.what), error.what
        assert error.where == "epoch 7"


def test_random_labels_are_judged_by_their_loss_alone() -> None:
    chance = last(loss=math.log(10), train=None, val=None)
    assert divergence(chance, 10, labelled=False) is None
    assert divergence(last(loss=3.0, train=None, val=None), 10, labelled=False) is not None


@given(classes=st.sampled_from([2, 3, 5, 10, 100, 1000]), accuracy=st.floats(0, 1))
def test_no_bound_on_accuracy_is_beyond_modest_learning(classes: int, accuracy: float) -> None:
    """With two classes 1.5 x chance would be 75 %: a run at 70 % has learned."""
    loss = 0.9 * math.log(classes)
    died = divergence(last(loss, accuracy, accuracy), classes, labelled=True)
    if accuracy > 1 / classes + 0.06:
        assert died is None
    if accuracy <= 1 / classes:
        assert died is not None
