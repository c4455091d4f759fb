"""Ghost and synchronised batch norm against numpy written from the papers, and against Keras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.invariants import Invariant

PROGRAM = Path(__file__).parents[1] / "programs" / "synchronised.py"
GHOST, SYNC = "T5 ghost batch norm", "T5 sync batch norm"
EPSILON = 1e-3
pytestmark = pytest.mark.tf
IMAGES, VECTORS = (12, 4, 3, 5), (12, 5)


def reference(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, dy: np.ndarray
) -> dict[str, np.ndarray]:
    """Ioffe and Szegedy 2015 (1502.03167), algorithm 1 and the gradients of section 3; float64."""
    x, dy = x.astype(np.float64), dy.astype(np.float64)
    axes = tuple(range(x.ndim - 1))
    n = x.size // x.shape[-1]
    mean, variance = x.mean(axes), x.var(axes)
    scale = 1 / np.sqrt(variance + EPSILON)
    hat = (x - mean) * scale
    inner = n * dy - dy.sum(axes) - hat * (dy * hat).sum(axes)
    return {
        "output": gamma * hat + beta,
        "inputs": gamma * scale / n * inner,
        "gamma": (dy * hat).sum(axes),
        "beta": dy.sum(axes),
        "mean": mean,
        "variance": variance,
    }


def by_ghosts(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, dy: np.ndarray, ghost: int
) -> dict[str, np.ndarray]:
    """Each ghost by itself; gamma and beta, which they share, get the sum of their gradients."""
    parts = [
        reference(x[i : i + ghost], gamma, beta, dy[i : i + ghost]) for i in range(0, len(x), ghost)
    ]
    return {
        "output": np.concatenate([part["output"] for part in parts]),
        "inputs": np.concatenate([part["inputs"] for part in parts]),
        "gamma": sum(part["gamma"] for part in parts),
        "beta": sum(part["beta"] for part in parts),
        "mean": np.stack([part["mean"] for part in parts]),
        "variance": np.stack([part["variance"] for part in parts]),
    }


def sample(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.uniform(-2, 2, shape[-1]), rng.uniform(0.5, 3, shape[-1]), shape)
    return x.astype(np.float32), rng.normal(size=shape).astype(np.float32)


def made(kind: str, of: str = "", dtype: Any = None, **attributes: Any) -> Any:
    """A layer of 5 channels with random parameters: ``of`` Ghost, Sync, or Keras' own."""
    import tensorflow as tf

    from train.models import normalisation

    module = normalisation if of else tf.keras.layers
    layer = getattr(module, f"{of}BatchNormalization")(momentum=0.7, dtype=dtype)
    for name, value in attributes.items():
        setattr(layer, name, value)
    rng = np.random.default_rng(1)
    layer.build((None, 4, 4, 5) if kind == "images" else (None, 5))
    layer.gamma.assign(rng.uniform(0.5, 2, 5))
    layer.beta.assign(rng.normal(size=5))
    layer.moving_mean.assign(rng.normal(size=5))
    layer.moving_variance.assign(rng.uniform(0.5, 2, 5))
    return layer


def trained(layer: Any, x: np.ndarray, dy: np.ndarray) -> dict[str, np.ndarray]:
    """Output of one training step's forward pass and the gradients of sum(output * dy)."""
    import tensorflow as tf

    inputs = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = layer(inputs, training=True)
        loss = tf.reduce_sum(output * dy)
    found = tape.gradient(loss, [inputs, layer.gamma, layer.beta])
    return {
        "output": output.numpy(),
        **{k: g.numpy() for k, g in zip(("inputs", "gamma", "beta"), found, strict=True)},
    }


def distance(found: Any, expected: Any) -> float:
    """Largest difference, relative to the largest expected number."""
    expected = np.asarray(expected, np.float64)
    return float(np.max(np.abs(np.asarray(found) - expected)) / max(1.0, np.max(np.abs(expected))))


def ghosts(kind: str, ghost: int, momentum_per: str = "ghost", dtype: Any = None) -> Any:
    return made(kind, "Ghost", dtype, ghost_batch=ghost, momentum_per=momentum_per)


KINDS = pytest.mark.parametrize(("kind", "shape"), [("images", IMAGES), ("vectors", VECTORS)])


@KINDS
def test_one_ghost_is_plain_batch_norm(kind: str, shape: Any, invariant: Invariant) -> None:
    ghost, usual = ghosts(kind, 12), made(kind)
    outputs, gradients = 0.0, 0.0
    for step in range(3):
        x, dy = sample(shape, step)
        found, expected = trained(ghost, x, dy), trained(usual, x, dy)
        outputs = max(outputs, distance(found.pop("output"), expected.pop("output")))
        gradients = max(gradients, *(distance(found[k], expected[k]) for k in expected))
    moved = max(
        distance(a, b)
        for a, b in (
            (ghost.moving_mean, usual.moving_mean),
            (ghost.moving_variance, usual.moving_variance),
        )
    )
    invariant(GHOST, "ghost = batch is plain batch norm: output", outputs, 1e-5)
    invariant(GHOST, "ghost = batch is plain batch norm: all gradients", gradients, 1e-5)
    invariant(GHOST, "ghost = batch is plain batch norm: moving statistics", moved, 1e-5)


@KINDS
@pytest.mark.parametrize("ghost", [3, 4])
def test_ghosts_are_neighbours_each_by_its_own_statistics(
    kind: str, shape: Any, ghost: int, invariant: Invariant
) -> None:
    layer = ghosts(kind, ghost)
    x, dy = sample(shape)
    expected = by_ghosts(x, layer.gamma.numpy(), layer.beta.numpy(), dy, ghost)
    found = trained(layer, x, dy)
    error = max(distance(value, expected[name]) for name, value in found.items())
    invariant(GHOST, "output and all gradients are the paper's, in numpy", error, 1e-5)


@KINDS
def test_moving_statistics_see_the_ghosts_in_turn(
    kind: str, shape: Any, invariant: Invariant
) -> None:
    layer = ghosts(kind, 4)
    mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    unbiased = 48 / 47 if kind == "images" else 1  # as Keras' layer keeps it
    for step in range(2):
        x, dy = sample(shape, step)
        trained(layer, x, dy)
        parts = by_ghosts(x, layer.gamma.numpy(), layer.beta.numpy(), dy, 4)
        for m, v in zip(parts["mean"], parts["variance"], strict=True):
            mean = 0.7 * mean + 0.3 * m
            variance = 0.7 * variance + 0.3 * v * unbiased
    error = max(distance(layer.moving_mean, mean), distance(layer.moving_variance, variance))
    invariant(GHOST, "moving statistics are the loop over ghosts in turn", error, 1e-5)


@KINDS
def test_a_batch_of_ghosts_can_be_remembered_as_one_batch(kind: str, shape: Any) -> None:
    """Of the old averages the three ghosts leave momentum together, and nearly equal parts of the
    new ones: with all ghosts alike it is batch norm's update of that share."""
    layer = ghosts(kind, 4, momentum_per="batch")
    before = layer.moving_mean.numpy()
    x, dy = sample(shape)
    x, dy = np.concatenate([x[:4]] * 3), np.concatenate([dy[:4]] * 3)
    trained(layer, x, dy)
    mean = by_ghosts(x, layer.gamma.numpy(), layer.beta.numpy(), dy, 4)["mean"][0]
    assert distance(layer.moving_mean, 0.7 * before + 0.3 * mean) < 1e-5


@KINDS
def test_ghosts_are_what_ranks_of_that_batch_do(
    kind: str, shape: Any, invariant: Invariant
) -> None:
    """Ghosts of b in one batch of k b, against k ranks with a batch b each and plain batch norm,
    whose gradients of gamma and beta are added up."""
    x, dy = sample(shape)
    found = trained(ghosts(kind, 4), x, dy)
    ranks = [trained(made(kind), x[i : i + 4], dy[i : i + 4]) for i in range(0, 12, 4)]
    error = max(
        distance(found["output"], np.concatenate([rank["output"] for rank in ranks])),
        distance(found["inputs"], np.concatenate([rank["inputs"] for rank in ranks])),
        distance(found["gamma"], sum(rank["gamma"] for rank in ranks)),
        distance(found["beta"], sum(rank["beta"] for rank in ranks)),
    )
    invariant(GHOST, "ghosts of b in k b images are k ranks with plain batch norm", error, 1e-5)


@KINDS
def test_evaluation_knows_no_ghosts(kind: str, shape: Any, invariant: Invariant) -> None:
    x, _ = sample(shape)
    odd = x[:7]  # which no ghost size divides
    expected = made(kind)(odd, training=False).numpy()
    for ghost in (2, 4, 12):
        error = distance(ghosts(kind, ghost)(odd, training=False), expected)
        invariant(GHOST, "evaluation does not depend on the ghost size", error, 0)
    frozen = ghosts(kind, 4)
    frozen.trainable = False
    assert np.array_equal(frozen(odd, training=True), expected), "as Keras' layer, when frozen"


def test_a_constant_channel_becomes_beta(invariant: Invariant) -> None:
    x, dy = sample(IMAGES)
    x[..., 2] = 7.0
    for technique, layer in (
        (GHOST, ghosts("images", 4)), (SYNC, made("images", "Sync", size=1)),
    ):  # fmt: skip
        found = trained(layer, x, dy)
        assert all(np.isfinite(value).all() for value in found.values())
        error = distance(found["output"][..., 2], layer.beta[2])
        invariant(technique, "a constant channel becomes beta", error, 1e-5)


def test_batches_without_whole_ghosts_are_refused() -> None:
    import tensorflow as tf

    x, _ = sample((10, 4, 3, 5))
    with pytest.raises(ValueError, match=r"10 images, expected a multiple of ghost_batch 4"):
        ghosts("images", 4)(x, training=True)

    @tf.function(input_signature=[tf.TensorSpec((None, 4, 3, 5))])
    def unknown(images: Any) -> Any:
        return ghosts("images", 4)(images, training=True)

    with pytest.raises(ValueError, match="None images"):
        unknown(x)


def test_variables_are_those_of_keras_and_float32_in_any_precision() -> None:
    import tensorflow as tf

    x, _ = sample(IMAGES)
    half = (x + 30).astype(np.float16)
    for layer in (
        ghosts("images", 12, dtype="mixed_float16"),
        made("images", "Sync", "mixed_float16", size=1),
    ):
        names = [variable.name.split("/")[-1] for variable in layer.variables]
        assert names == ["gamma:0", "beta:0", "moving_mean:0", "moving_variance:0"]
        assert {(v.dtype, v.shape) for v in layer.variables} == {(tf.float32, (5,))}
        before = layer.moving_variance.numpy()
        assert layer(half, training=True).dtype == tf.float16
        exact = half.astype(np.float64).var((0, 1, 2), ddof=1)
        # in float16 the squares of 30 would be off by a half
        assert distance(layer.moving_variance, 0.7 * before + 0.3 * exact) < 1e-5


@KINDS
def test_synchronised_over_one_rank_is_plain_batch_norm(
    kind: str, shape: Any, invariant: Invariant
) -> None:
    layer, usual = made(kind, "Sync", size=1), made(kind)
    x, dy = sample(shape)
    found, expected = trained(layer, x, dy), trained(usual, x, dy)
    error = max(
        *(distance(found[name], expected[name]) for name in expected),
        distance(layer.moving_mean, usual.moving_mean),
        distance(layer.moving_variance, usual.moving_variance),
    )
    invariant(SYNC, "one rank is plain batch norm, moving statistics included", error, 1e-5)


@pytest.mark.ranks2
def test_two_synchronised_ranks_are_one_large_batch(start_ranks: Any, invariant: Invariant) -> None:
    """Outputs, input gradients and moving statistics of two real ranks; the second case far from
    zero, where float32 holds a mean to 6e-5."""
    ranks = [json.loads(text) for text in start_ranks([str(PROGRAM)], 2)]
    for name, bound in (("images", 1e-5), ("vectors", 1e-5), ("far", 3e-4)):
        where = " (1000 deviations from 0)" if name == "far" else ""
        statement = f"two ranks are one large batch{where}"
        cases = [rank[name] for rank in ranks]
        x, dy = (np.concatenate([case[key] for case in cases]) for key in ("x", "dy"))
        gamma, beta = (np.asarray(cases[0][key]) for key in ("gamma_is", "beta_is"))
        expected = reference(x, gamma, beta, dy)
        assert [case["messages"] for case in cases] == [2, 2], "one forward and one backward"
        for key, what in (("output", "outputs"), ("inputs", "input gradients")):
            found = np.concatenate([case[key] for case in cases])
            error = distance(found, expected[key])
            invariant(SYNC, f"{statement}: {what}", error, bound)
        for key in ("gamma", "beta"):
            error = distance(sum(np.asarray(case[key]) for case in cases), expected[key])
            invariant(SYNC, f"{statement}: gamma and beta gradients", error, bound)
        n = x.size // x.shape[-1]
        kept = expected["variance"] * (n / (n - 1) if x.ndim == 4 else 1)
        mean = 0.7 * np.zeros_like(gamma) + 0.3 * expected["mean"]
        variance = 0.7 * np.ones_like(gamma) + 0.3 * kept
        assert cases[0]["moving"] == cases[1]["moving"], "bit for bit"
        error = max(
            distance(cases[0]["moving"][0], mean), distance(cases[0]["moving"][1], variance)
        )
        invariant(SYNC, f"{statement}: moving statistics", error, bound)
