"""Validation: each image once over any number of shards, and the numbers of a plain loop."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from tests.builders import config, row
from train.data.dataset import Dataset, make_dataset

pytestmark = pytest.mark.tf

OWN = f"net.py:build@{'0' * 64}"
CLASSES, SHAPE = 4, (2, 2, 1)


def data(images: int) -> Dataset:
    """The last image is one that the model below is badly wrong about: padding repeats it."""
    rng = np.random.default_rng(images)
    x = rng.integers(0, 256, (images, *SHAPE), dtype=np.uint8)
    y = rng.integers(0, CLASSES, images)
    x[-1], y[-1] = 255, 0
    return make_dataset("t", list("abcd"), (x[:1], y[:1]), (x, y))


def model() -> Any:
    """One dense layer, with the last class far ahead on white images."""
    import tensorflow as tf

    inputs = tf.keras.Input(SHAPE, dtype="uint8")
    x = tf.keras.layers.Flatten()(tf.keras.layers.Rescaling(1 / 255)(inputs))
    net = tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(x))
    weights = np.random.default_rng(1).normal(0, 1, (4, CLASSES))
    weights[:, -1] += 2
    net.set_weights([weights, np.array([0.1, -0.2, 0.3, 0.0])])
    return net


class Plain(NamedTuple):
    loss: float
    accuracy: float
    predicted: list[int]


def plain_loop(net: Any, given: Dataset) -> Plain:
    """Mean cross-entropy, accuracy and predictions, image by image, in float64."""
    weights, bias = (w.astype(np.float64) for w in net.get_weights())
    loss, predicted = 0.0, []
    for image, label in zip(given.validation_x, given.validation_y, strict=True):
        logits = image.reshape(-1) / 255 @ weights + bias
        loss += math.log(sum(math.exp(z) for z in logits)) - logits[label]
        predicted.append(max(range(CLASSES), key=lambda k: logits[k]))
    correct = sum(a == b for a, b in zip(predicted, given.validation_y, strict=True))
    return Plain(loss / len(predicted), correct / len(predicted), predicted)


@dataclass
class Rank:
    """One of several that are threads: each gives its part of a sum, and all get it."""

    rank: int
    size: int
    gate: threading.Barrier
    parts: dict[int, Any]

    def summed(self, mine: Any) -> Any:
        self.parts[self.rank] = mine
        self.gate.wait()
        total = sum(self.parts[rank] for rank in range(self.size))
        self.gate.wait()
        return total


def on_ranks(size: int, work: Callable[[Rank], Any]) -> list[Any]:
    """What each of ``size`` ranks gets."""
    gate, parts = threading.Barrier(size, timeout=60), {}
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(Rank(rank, size, gate, parts)), range(size)))


def evaluate(net: Any, given: Dataset, size: int) -> list[Any]:
    from train.trainer.evaluate import Evaluator

    def on_one(rank: Rank) -> Any:
        evaluator = Evaluator(config(), net, given, rank)
        return evaluator.evaluation(rank.summed(evaluator.counts()))

    return on_ranks(size, on_one)


@pytest.mark.parametrize("images", [1, 2, 501, 1203])
def test_any_number_of_shards_gives_the_numbers_of_a_plain_loop(images: int) -> None:
    """Also classes that are not there, more ranks than images, shards of unequal size, over which a
    mean of means errs, and a last part filled up with copies of the one bad image, which must not
    count. The matrix is scikit-learn's, count for count."""
    net, given = model(), data(images)
    loss, accuracy, predicted = plain_loop(net, given)
    matrix = confusion_matrix(given.validation_y, predicted, labels=range(CLASSES))
    for size in (1, 2, 3):
        for found in evaluate(net, given, size):
            assert found.images == images
            assert found.accuracy == accuracy, f"{size} shards"
            assert found.loss == pytest.approx(loss, rel=1e-5), f"{size} shards"
            assert [*found.counts[3 * CLASSES :]] == [*matrix.flat], f"{size} shards"


def test_the_model_is_asked_in_evaluation_mode_and_stays_as_it_is() -> None:
    import tensorflow as tf

    inputs = tf.keras.Input(SHAPE, dtype="uint8")
    x = tf.keras.layers.Flatten()(tf.keras.layers.Rescaling(1 / 255)(inputs))
    x = tf.keras.layers.Dropout(0.5)(tf.keras.layers.BatchNormalization()(x))
    net = tf.keras.Model(inputs, tf.keras.layers.Dense(CLASSES)(x))
    before = [v.numpy().copy() for v in net.variables]
    first = evaluate(net, data(700), 1)
    assert first == evaluate(net, data(700), 1)
    assert all(np.array_equal(a, b) for a, b in zip(before, net.variables, strict=True))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_percentiles_of_a_sigmoid_s_input_are_of_all_images(size: int) -> None:
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.models.networks import a_sigmoid_input, build_model

    of = config(model="mlp", technique=row(normalisation="batch_norm"))
    net = build_model(of, SHAPE, CLASSES, StepSeed(0))
    given = data(1203)
    inputs = tf.keras.Model(net.input, a_sigmoid_input(net))(given.validation_x, training=False)
    expected = np.percentile(inputs, [15, 50, 85])
    for found in evaluate(net, given, size):
        np.testing.assert_allclose(found.sigmoid_input, expected, rtol=1e-5)


def test_inputs_of_a_network_that_diverged_are_left_out() -> None:
    from train.models.layers import StepSeed
    from train.models.networks import build_model

    net = build_model(config(model="mlp"), SHAPE, CLASSES, StepSeed(0))
    net.get_layer("hidden3").bias.assign(np.full(100, np.inf))
    (found,) = evaluate(net, data(12), 1)
    assert found.sigmoid_input == ()


@pytest.mark.parametrize(
    ("side", "images"), [(8, 500), (32, 500), (64, 500), (224, 41), (1024, 2), (4096, 1)]
)
def test_large_images_are_evaluated_a_few_at_a_time(side: int, images: int) -> None:
    from train.trainer.evaluate import images_at_once

    assert images_at_once(config(), side, side) == images
    few = [images_at_once(config(model=OWN, batch_per_rank=b), side, side) for b in (2, 64)]
    assert few == [min(images, 16), min(images, 64)], "of a network that may need more for each"
