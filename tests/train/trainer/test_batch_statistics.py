"""Batch-norm statistics: two ranks' own become one model's, and those of present weights."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import row
from tests.invariants import Invariant

PROGRAM = Path(__file__).parents[1] / "programs" / "settled_statistics.py"
ESTIMATED = Path(__file__).parents[1] / "programs" / "estimated.py"


@pytest.mark.ranks2
def test_statistics_are_pooled_and_evaluation_is_then_the_same(
    start_ranks: Any, data_root: Path, invariant: Invariant
) -> None:
    """The law of total variance, against samples that have each rank's moments exactly."""
    ranks = [json.loads(text) for text in start_ranks([str(PROGRAM), data_root], 2)]
    apart = float(
        [case["after"] for case in ranks[0][:2]] != [case["after"] for case in ranks[1][:2]]
    )
    invariant("T5 batch norm", "all ranks have the same moving statistics when reduced", apart, 0)
    for near_or_far in range(2):
        pooled_like_samples([rank[near_or_far] for rank in ranks])
    first, second = (rank[0] for rank in ranks)
    assert first["own_before"] != second["own_before"]
    assert first["own_after"] == second["own_after"]
    assert first["together_after"] == second["together_after"]
    loss, accuracy, images, *_ = first["together_after"]
    assert loss == pytest.approx(first["own_after"][0], rel=1e-6)
    assert [accuracy, images] == [first["own_after"][1], 360]
    assert [rank[2] for rank in ranks] == [len(os.sched_getaffinity(0)) == 1] * 2, "oversubscribed"


def pooled_like_samples(ranks: list[dict[str, Any]]) -> None:
    assert len(ranks[0]["after"]) == 3
    for layer, (mean, variance) in enumerate(ranks[0]["after"]):
        halves = [two_samples(*rank["before"][layer]) for rank in ranks]
        both = np.concatenate(halves)
        np.testing.assert_allclose(mean, both.mean(axis=0), rtol=1e-6, atol=1e-8)
        # fp32 at 1000 leaves steps of 6e-5 in the means
        np.testing.assert_allclose(variance, both.var(axis=0), atol=2e-4)
        assert not np.allclose(mean, halves[0].mean(axis=0), rtol=1e-6), "there was a difference"


def two_samples(mean: list[float], variance: list[float]) -> np.ndarray:
    """Two samples per channel, [2, channels], whose mean and (biased) variance are those given."""
    spread = np.sqrt(np.asarray(variance, np.float64))
    return np.stack([np.asarray(mean) - spread, np.asarray(mean) + spread])


EPSILON = 1e-3


def small_net(kind: str) -> Any:
    """Two layers of batch norm, over maps and over vectors: [6, 5, 3] pixels, 4 outputs."""
    import tensorflow as tf

    from train.models.normalisation import replace_batch_norms

    ghosts = {"ghost_batch": 4} if kind == "ghost_batch_norm" else {}
    L = tf.keras.layers
    tf.keras.utils.set_random_seed(3)
    images = tf.keras.Input((6, 5, 3), dtype="uint8")
    x = L.BatchNormalization(momentum=0.9, name="maps")(L.Rescaling(1 / 255)(images))
    x = L.Dense(4, name="dense")(L.Flatten()(x))
    model = tf.keras.Model(images, L.BatchNormalization(momentum=0.9, name="vectors")(x))
    replace_batch_norms(model, row(normalisation=kind, **ghosts), 1)
    rng = np.random.default_rng(2)
    for layer in (model.get_layer("maps"), model.get_layer("vectors")):
        for value in layer.variables:
            value.assign(rng.uniform(0.5, 2, value.shape))
    return model


def by_numpy(model: Any, parts: list[np.ndarray]) -> list[np.ndarray]:
    """Mean and variance of both layers: parts are normalised together, then the law of total
    variance (Wu and Johnson 2021, 2105.07576, section 3.1); float64."""
    seen: list[list[np.ndarray]] = [[], []]
    gamma, beta = (v.numpy().astype(np.float64) for v in model.get_layer("maps").weights[:2])
    kernel, bias = (v.numpy().astype(np.float64) for v in model.get_layer("dense").weights)
    for part in parts:
        x = part.astype(np.float64) / 255
        seen[0].append(x)
        x = gamma * (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + EPSILON) + beta
        seen[1].append(x.reshape(len(x), -1) @ kernel + bias)
    # parts are of one size, so that the law gives the moments of all numbers together
    together = [np.concatenate([x.reshape(-1, x.shape[-1]) for x in layer]) for layer in seen]
    return [moment for x in together for moment in (x.mean(0), x.var(0))]


@pytest.mark.tf
@pytest.mark.parametrize(
    ("kind", "together"), [("batch_norm", 8), ("ghost_batch_norm", 4), ("sync_batch_norm", 8)]
)
def test_statistics_taken_anew_are_those_of_all_the_images(
    kind: str, together: int, invariant: Invariant
) -> None:
    from train.trainer.batch_statistics import reestimate_statistics

    model = small_net(kind)
    rng = np.random.default_rng(4)
    images = rng.integers(0, 256, (24, 6, 5, 3), dtype=np.uint8)
    images[8:16] //= 3  # batches that differ, so that the spread of their means counts
    weights = [v.numpy() for v in model.trainable_variables]
    expected = by_numpy(model, np.split(images, 24 // together))
    reestimate_statistics(model, iter(np.split(images, 3)), 1)
    found = [
        value.numpy()
        for name in ("maps", "vectors")
        for value in (model.get_layer(name).moving_mean, model.get_layer(name).moving_variance)
    ]
    error = max(
        np.max(np.abs(own - exact)) / max(1, np.max(np.abs(exact)))
        for own, exact in zip(found, expected, strict=True)
    )
    invariant("T5 batch norm", "re-estimated statistics are numpy's of all the images", error, 1e-5)
    for own, before in zip(model.trainable_variables, weights, strict=True):
        assert np.array_equal(own, before)
    assert {model.get_layer(name).momentum for name in ("maps", "vectors")} == {0.9}
    reestimate_statistics(model, np.split(images, 3), 1)
    again = [v.numpy() for v in model.non_trainable_variables]
    assert all(np.array_equal(a, b) for a, b in zip(again, found, strict=True)), "from no state"


@pytest.mark.tf
def test_estimating_changes_nothing_else_and_graphs_keep_their_momentum() -> None:
    """A graph made before goes on with its momentum; a network inside a network has its layers
    estimated as well."""
    import tensorflow as tf

    from train.trainer.batch_statistics import reestimate_statistics

    inner = small_net("batch_norm")
    outer_input = tf.keras.Input((6, 5, 3), dtype="uint8")
    model = tf.keras.Model(outer_input, tf.keras.layers.Dense(2)(inner(outer_input)))
    images = np.random.default_rng(4).integers(0, 256, (8, 6, 5, 3), dtype=np.uint8)
    step = tf.function(lambda x: model(x, training=True))
    step(tf.constant(images))
    reestimate_statistics(model, [images], 1)
    layer = inner.get_layer("maps")
    exact = images.astype(np.float64).mean((0, 1, 2)) / 255
    np.testing.assert_allclose(layer.moving_mean, exact, rtol=1e-6)
    dark = tf.zeros_like(images)
    step(dark)
    np.testing.assert_allclose(layer.moving_mean, 0.9 * exact, rtol=1e-6)
    model(dark, training=True)
    np.testing.assert_allclose(layer.moving_mean, 0.81 * exact, rtol=1e-6)


@pytest.mark.ranks2
@pytest.mark.slow
def test_two_ranks_estimate_what_one_process_does(
    start_ranks: Any, data_root: Path, invariant: Invariant
) -> None:
    ranks = [json.loads(text) for text in start_ranks([str(ESTIMATED), data_root], 2)]
    for kind, name in (
        ("batch_norm", "T5 batch norm"),
        ("ghost_batch_norm", "T5 ghost batch norm"),
        ("sync_batch_norm", "T5 sync batch norm"),
    ):
        assert ranks[0][kind]["digest"] == ranks[1][kind]["digest"], "bit for bit"
        assert ranks[0][kind]["numbers"] == 2 * (64 + 640 + 1280)
        error = max(rank[kind]["error"] for rank in ranks)
        invariant(name, "two ranks re-estimate what one process does", error, 1e-4)
