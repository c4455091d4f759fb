"""The largest eigenvalue of the Hessian, against matrices that are written out."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from tests.train.trainer.test_evaluate import on_ranks
from train.data.dataset import Dataset, make_dataset

pytestmark = pytest.mark.tf

SHAPE, CLASSES, IMAGES = (6, 6, 1), 3, 40
TOLERANCE = 0.01  # of sharpness.py


def data() -> Dataset:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (IMAGES, *SHAPE), dtype=np.uint8)
    y = rng.integers(0, CLASSES, IMAGES)
    return make_dataset("t", list("abc"), (x, y), (x[:1], y[:1]))


def network() -> Any:
    """What networks have: convolutions, batch norm in use, a maximum, a dense layer."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(1)
    layers = tf.keras.layers
    net = tf.keras.Sequential([
        tf.keras.Input(SHAPE, dtype="uint8"), layers.Rescaling(1 / 255),
        layers.Conv2D(2, 3), layers.BatchNormalization(epsilon=1e-12), layers.ReLU(),
        layers.MaxPooling2D(2), layers.DepthwiseConv2D(2), layers.Flatten(), layers.Dense(CLASSES),
    ])  # fmt: skip
    net.layers[2].moving_mean.assign([0.1, -0.2])
    net.layers[2].moving_variance.assign([0.3, 0.5])
    return net


def dense_hessian(net: Any, given: Dataset, rows: slice) -> Any:
    """[parameters, parameters], by TensorFlow's Jacobian of the gradient."""
    import tensorflow as tf

    with tf.GradientTape(persistent=True) as outer:
        with tf.GradientTape() as inner:
            logits = net(given.train_x[rows], training=False)
            losses = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            loss = losses(given.train_y[rows], logits)
        gradients = inner.gradient(loss, net.trainable_variables)
        flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
    columns = outer.jacobian(
        flat, net.trainable_variables,
        unconnected_gradients=tf.UnconnectedGradients.ZERO, experimental_use_pfor=False,
    )  # fmt: skip
    return np.concatenate([c.numpy().reshape(len(flat), -1) for c in columns], 1, dtype=np.float64)


def measured(net: Any, given: Dataset, images: int = IMAGES, ranks: Any = None) -> Any:
    from train.distributed.communicator import Ranks
    from train.trainer.sharpness import sharpness

    return sharpness(net, given, np.arange(IMAGES), images, ranks or Ranks(0, 1), 500)


def test_batch_norm_is_not_fused_while_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient in evaluation mode has no deterministic kernel on a GPU."""
    import tensorflow as tf

    from train.trainer import sharpness as measuring

    graphs = []
    ours = measuring._Hessian._product.python_function

    def kept(self: Any, *arguments: Any) -> Any:
        graphs.append(tf.compat.v1.get_default_graph())
        return ours(self, *arguments)

    monkeypatch.setattr(measuring._Hessian, "_product", measuring.graph(kept))
    net = network()
    measured(net, data())

    def operations(graph: Any) -> set[str]:
        return {op.type for op in graph.get_operations()}

    assert "Conv2DBackpropFilter" in operations(graphs[0])
    assert not [name for name in operations(graphs[0]) if name.startswith("FusedBatchNorm")]
    assert net.layers[2].fused


@pytest.mark.parametrize("size", [1, 2, 7, 200])
def test_the_largest_eigenvalue_is_that_of_numpy(size: int) -> None:
    from train.trainer.sharpness import MOST_PRODUCTS, largest_eigenvalue

    rng = np.random.default_rng(size)
    root = rng.normal(size=(size, size))
    matrix = root + root.T
    products = 0

    def times(vector: Any) -> Any:
        nonlocal products
        products += 1
        return matrix @ vector

    found, error = largest_eigenvalue(times, size)
    true = np.linalg.eigvalsh(matrix)[-1]
    assert abs(found - true) <= TOLERANCE * abs(true) + 1e-9
    assert error <= TOLERANCE * abs(found) or products == MOST_PRODUCTS
    assert products <= min(size, MOST_PRODUCTS)


def test_its_memory_is_what_is_asked_for_before_the_run() -> None:
    """Before, three copies of all vectors were in memory at once: 24 GB for ResNet-50."""
    from train.trainer.sharpness import largest_eigenvalue, sharpness_bytes

    size = 100_000
    values = np.random.default_rng(1).normal(size=size)
    tracemalloc.start()
    largest_eigenvalue(lambda vector: values * vector, size)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 * sharpness_bytes(size) < peak <= sharpness_bytes(size)


def test_a_network_without_finite_second_derivatives_has_none() -> None:
    """Its run has come to its end all the same, and must not lose its record for it."""
    net = network()  # its loss is 1.1
    for place, factor in ((1, 1e25), (-1, 1e-28)):
        layer = net.layers[place]
        layer.set_weights([factor * weight for weight in layer.get_weights()])
    assert measured(net, data()) is None


def test_it_is_the_eigenvalue_of_the_written_out_hessian() -> None:
    net, given = network(), data()
    hessian = dense_hessian(net, given, slice(None))
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-5)
    found = measured(net, given)
    assert found.images == IMAGES
    assert found.largest == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=TOLERANCE)
    # by hand: each filter, each class' weights and each vector by its own norm. Before, the filters
    # of a depthwise kernel counted as one
    lengths = []
    for variable, filters in zip(net.trainable_variables, (2, 1, 1, 1, 2, 1, 3, 1), strict=True):
        flat = variable.numpy().astype(np.float64).reshape(-1, filters)
        norms = [np.linalg.norm(flat[:, place]) for place in range(flat.shape[1])]
        lengths.append(np.tile(norms, len(flat)))
    scale = np.concatenate(lengths)
    scaled = np.linalg.eigvalsh(scale[:, None] * hessian * scale)[-1]
    assert found.scaled == pytest.approx(scaled, rel=TOLERANCE)


def test_a_filter_is_what_makes_one_output_of_its_layer() -> None:
    """Seen: each kernel's last axis, which are the inputs of transposed convolutions. Other
    variables, as embeddings, count as one."""
    import tensorflow as tf

    from train.trainer.sharpness import _lengths

    layers = tf.keras.layers
    x = images = tf.keras.Input((4, 3))
    x = layers.Conv1DTranspose(5, 2, name="transposed")(x)
    x = layers.MultiHeadAttention(2, 3, name="attention")(x, x)
    x = layers.SeparableConv1D(6, 2, depth_multiplier=2, name="separable")(x)
    x += layers.Embedding(5, 6, name="table")(tf.range(4))
    x = layers.GRU(4, name="gru")(x)
    net = tf.keras.Model(images, x)
    # of each kernel the axes over which its filters are summed
    summed = {
        "transposed/kernel": (0, 2), "query/kernel": 0, "key/kernel": 0, "value/kernel": 0,
        "attention_output/kernel": (0, 1), "separable/depthwise_kernel": 0,
        "separable/pointwise_kernel": (0, 1), "gru_cell/kernel": 0, "gru_cell/recurrent_kernel": 0,
    }  # fmt: skip
    expected = []
    for variable in net.trainable_variables:
        weights, name = variable.numpy().astype(np.float64), variable.name.removesuffix(":0")
        axes = next((axes for end, axes in summed.items() if name.endswith(end)), None)
        norms = np.sqrt(np.sum(weights**2, axis=axes, keepdims=True))
        expected.append(np.broadcast_to(norms, weights.shape).ravel())
    np.testing.assert_allclose(_lengths(net), np.concatenate(expected))


def test_it_takes_images_that_are_evenly_spaced() -> None:
    net, given = network(), data()
    hessian = dense_hessian(net, given, slice(0, None, 13))  # 0, 13, 26, 39
    found = measured(net, given, images=4)
    assert found.images == 4
    assert found.largest == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=TOLERANCE)
    assert measured(net, given, images=10**6).images == IMAGES


def test_ranks_find_together_what_one_finds() -> None:
    """The ranks are threads; each has its share of the images."""
    nets, given = [network(), network(), network()], data()
    first, second = on_ranks(2, lambda rank: measured(nets[rank.rank], given, 31, rank))
    alone = measured(nets[2], given, 31)
    assert first == second and first.images == 31
    assert first.largest == pytest.approx(alone.largest, rel=1e-3)
    assert first.scaled == pytest.approx(alone.scaled, rel=1e-3)
