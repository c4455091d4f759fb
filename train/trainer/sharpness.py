"""Sharpness of the minimum that a run ends in: the largest eigenvalue of the loss's Hessian.

The loss is the mean cross-entropy of fixed training images, as they are and without label smoothing
or weight decay, and the network is as evaluation has it: no dropout, batch norm by its averages.

The eigenvalue alone depends on the scale of the weights, which batch norm leaves without meaning
(Dinh et al. 2017, 1703.04933): filters twice as long compute the same and have a quarter of it. So
``scaled`` is that of T H T, where T multiplies each number by the norm of its filter, or of its
whole variable if that is no kernel: the curvature by changes relative to the filters (Li et al.
2018, 1712.09913, section 4; Kwon et al. 2021, 2102.11600, section 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from train.data.dataset import Dataset
from train.data.sampling import Indices, evaluation_shard
from train.distributed.communicator import ALONE, Ranks
from train.errors import ConfigError
from train.models.layers import graph
from train.record.measurements import Sharpness
from train.tensorflow_internals import all_layers

L = tf.keras.layers
Vector = NDArray[np.float64]
#: Products with the Hessian, at most, and the error of an eigenvalue, as a share of it, that ends
#: them before.
MOST_PRODUCTS, TOLERANCE = 40, 0.01


def sharpness(
    model: tf.keras.Model,
    data: Dataset,
    used: Indices,
    images: int,
    ranks: Ranks,
    at_once: int,
    beat: Callable[[str], None] = lambda _: None,
) -> Sharpness | None:
    """Of the model's present weights; None if second derivatives are no numbers; collective.

    used: training images of the run; ``images`` of them are taken, evenly spaced, or all.
    at_once: images of an evaluation's forward pass, which needs a third of the memory.
    """
    chosen = used[np.linspace(0, len(used) - 1, min(images, len(used))).astype(np.int64)]
    hessian = _Hessian(model, data, chosen, ranks, max(1, at_once // 3), beat)
    lengths = _lengths(model)
    try:
        with _unfused(model):
            largest, error = largest_eigenvalue(hessian.times, len(lengths))
            scaled, scaled_error = largest_eigenvalue(
                lambda v: lengths * hessian.times(lengths * v), len(lengths)
            )
    except np.linalg.LinAlgError:  # on all ranks, which add up the same products
        return None
    return Sharpness(
        images=len(chosen),
        largest=largest,
        largest_error=error,
        scaled=scaled,
        scaled_error=scaled_error,
    )


def check_sharpness(model: tf.keras.Model, data: Dataset) -> None:
    """Make the graph that :func:`sharpness` needs, before hours of training.

    Raises:
        ConfigError: an operation of the network has no second derivative.
    """
    hessian = _Hessian(model, data, np.arange(1), ALONE, 1, lambda _: None)
    along = [tf.TensorSpec(shape) for shape in hessian.shapes]
    images, labels = (
        tf.type_spec_from_value(tf.constant(x[:1])) for x in (data.train_x, data.train_y)
    )
    try:
        with _unfused(model):
            hessian._product.get_concrete_function(images, labels, along)
    except (LookupError, TypeError, ValueError, NotImplementedError) as error:
        raise ConfigError(
            f"sharpness_images: TensorFlow cannot differentiate this network twice ({error}): "
            "leave sharpness_images out"
        ) from error


def largest_eigenvalue(times: Callable[[Vector], Vector], size: int) -> tuple[float, float]:
    """Of the symmetric matrix that ``times`` multiplies by, [size, size], and the residual's norm:
    an eigenvalue lies within it of the first number.

    Lanczos' method with every vector made orthogonal to all before it, twice (Golub and Van Loan,
    Matrix Computations, 4th edition, section 10.3), from one fixed start vector.
    """
    most = min(size, MOST_PRODUCTS)
    basis = np.empty((most, size))  # by far the most memory: see sharpness_bytes
    start = np.random.default_rng(0).normal(size=size)
    np.divide(start, np.linalg.norm(start), out=basis[0])
    del start
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    while True:
        own = basis[: len(diagonal) + 1]
        product = times(own[-1])
        diagonal.append(float(product @ own[-1]))
        for _ in range(2):
            product = product - own.T @ (own @ product)
        left = float(np.linalg.norm(product))
        matrix = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
        values, vectors = np.linalg.eigh(matrix)
        largest, error = float(values[-1]), left * abs(float(vectors[-1, -1]))
        if len(own) == most or error <= TOLERANCE * abs(largest):
            return largest, error
        off_diagonal.append(left)
        np.divide(product, left, out=basis[len(own)])


def sharpness_bytes(parameters: int) -> int:
    """Of memory on the host that each rank may need: the vectors of all products, and seven in
    use."""
    return (min(parameters, MOST_PRODUCTS) + 7) * parameters * np.dtype(np.float64).itemsize


@contextmanager
def _unfused(model: tf.keras.Model) -> Iterator[None]:
    """Batch norm as plain arithmetic: on a GPU, TensorFlow's fused kernel has no deterministic
    gradient in evaluation mode, and refuses to compute one."""
    layers = [x for x in all_layers(model) if isinstance(x, tf.keras.layers.BatchNormalization)]
    fused = [layer.fused for layer in layers]
    for layer in layers:
        layer.fused = False
    try:
        yield
    finally:
        for layer, was in zip(layers, fused, strict=True):
            layer.fused = was


class _Hessian:
    """Of the loss by the trainable variables, one after the other in one vector."""

    def __init__(
        self, model: tf.keras.Model, data: Dataset, chosen: Indices, ranks: Ranks, batch: int,
        beat: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.model, self.data, self.ranks, self.beat = model, data, ranks, beat
        self.count = len(chosen)
        self.products = 0
        mine = chosen[evaluation_shard(len(chosen), ranks.rank, ranks.size)]
        self.parts = [mine[i : i + batch] for i in range(0, len(mine), batch)]
        self.shapes = [variable.shape for variable in model.trainable_variables]
        self.ends = np.cumsum([math.prod(shape) for shape in self.shapes])

    def times(self, vector: Vector) -> Vector:
        self.products += 1
        pieces = np.split(vector.astype(np.float32), self.ends[:-1])
        along = [
            tf.constant(piece.reshape(shape))
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]
        total = np.zeros_like(vector)
        for number, part in enumerate(self.parts, 1):
            self.beat(
                f"measuring the sharpness, product {self.products}, part {number} of "
                f"{len(self.parts)}"
            )
            total += self._product(self.data.train_x[part], self.data.train_y[part], along).numpy()
        return self.ranks.summed(total) / self.count

    @graph
    def _product(self, images: tf.Tensor, labels: tf.Tensor, along: list[tf.Tensor]) -> Any:
        """Of the sum of the losses: the gradient of the gradient's component along a vector."""
        variables = self.model.trainable_variables
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                logits = self.model(images, training=False)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
                loss = tf.reduce_sum(losses)
            gradients = inner.gradient(loss, variables)
            pairs = zip(gradients, along, strict=True)
            component = tf.add_n([tf.reduce_sum(gradient * v) for gradient, v in pairs])
        zero = tf.UnconnectedGradients.ZERO
        products = outer.gradient(component, variables, unconnected_gradients=zero)
        return tf.concat([tf.reshape(product, [-1]) for product in products], axis=0)


def _lengths(model: tf.keras.Model) -> Vector:
    """The norm of each number's filter: of what makes one output of a layer, be it of one head, and
    in a depthwise kernel one of those for a map. Biases, embeddings, vectors and what layers of
    other kinds have are one filter each."""
    axes = {v.ref(): along for layer in all_layers(model) for v, along in _kernels(layer)}
    lengths = []
    for variable in model.trainable_variables:
        weights = variable.numpy()
        along = axes.get(variable.ref(), ())
        summed = tuple(n for n in range(weights.ndim) if n - weights.ndim not in along)
        norms = np.sqrt(np.sum(np.square(weights, dtype=np.float64), axis=summed, keepdims=True))
        lengths.append(np.broadcast_to(norms, weights.shape).ravel())
    return np.concatenate(lengths)


def _kernels(layer: Any) -> Iterator[tuple[tf.Variable, Sequence[int]]]:
    """And the axes along which its filters lie, counted from the last one."""
    along: dict[str, Sequence[int]] = {"depthwise_kernel": (-2, -1)}
    along |= dict.fromkeys(("kernel", "pointwise_kernel", "recurrent_kernel"), (-1,))
    if isinstance(layer, L.Conv1DTranspose | L.Conv2DTranspose | L.Conv3DTranspose):
        along["kernel"] = (-2,)
    if isinstance(layer, L.EinsumDense):
        _, kernel, outputs = layer.equation.replace("->", ",").split(",")
        along["kernel"] = [n - len(kernel) for n, axis in enumerate(kernel) if axis in outputs]
    for name, axes in along.items():
        if isinstance(variable := getattr(layer, name, None), tf.Variable):
            yield variable, axes
