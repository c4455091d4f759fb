"""Adasum: sums what is orthogonal, averages what is parallel (Maleki et al. 2020, 2006.02924).

A(a, b) = (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b for each tensor by itself, over the
ranks of a binary tree: ((0, 1), (2, 3)), ... Own, because Horovod 0.28.1 gives something else or
nothing: its Keras optimizers refuse op=Adasum, over Gloo it has none ("No Adasum operation
enabled"), and its NCCL build averages inside a node and runs the tree between nodes only, so on one
node there is no Adasum at all.

Here gradients are combined, before clipping and the optimizer. Horovod's guide combines weight
changes of each rank's optimizer: the same for plain SGD, not for momentum and Adam.

Every node of the tree is a weighted sum of the ranks' gradients, and its dot products follow from
theirs. So the ranks add up one small matrix of dot products per tensor (float64), walk the tree on
weights alone, and mix the gradients once: the bytes of one all-reduce, not of log2(k) exchanges of
whole gradients.

Shares, which bf16 compression uses as well: each rank owns an equal share of every tensor, collects
it from all ranks, and hands the result back: the two halves of a ring all-reduce with room for any
arithmetic between them (Horovod adds element by element, in the type that travels), at its cost
(Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002, section 3). Each element is computed once,
by its owner, so all ranks end with the same bits. Memory: about three copies of the tensors in the
type that travels and, for Adasum, one in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from train.distributed.communicator import allgather, allreduce_sum, alltoall

# |v|^2 over that of its parts below which v is the rounding of float32 and means nothing
_NOTHING = 2.0**-44


def over_ranks(
    gradients: Sequence[tf.Tensor], scalars: Sequence[tf.Tensor], size: int
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Adasum of each gradient over the ranks, equal on all; and the means of ``scalars``, which
    travel with the dot products. float32, shapes known; size: a power of two."""
    shares = collect(gradients, size, "gradients")
    mine = tf.stack([dot_products(share) for share in shares])
    count = mine.shape.num_elements()
    sent = tf.concat([tf.reshape(mine, [-1]), tf.cast(tf.stack(scalars), tf.float64)], axis=0)
    summed = allreduce_sum(sent, "dot_products")
    weights = tree_weights(tf.reshape(summed[:count], mine.shape))
    mixed = [mix(share, weights[i]) for i, share in enumerate(shares)]
    whole = hand_back(mixed, [gradient.shape for gradient in gradients], size, "gradients")
    return whole, tf.unstack(tf.cast(summed[count:] / size, tf.float32), len(scalars))


def dot_products(vectors: tf.Tensor) -> tf.Tensor:
    """Of all pairs: [k, n] -> float64 [k, k]. In float64, because squares of small gradients vanish
    in float32, and the tree subtracts nearly equal ones."""
    wide = tf.cast(vectors, tf.float64)
    return tf.matmul(wide, wide, transpose_b=True)


def tree_weights(dots: tf.Tensor) -> tf.Tensor:
    """What each of k vectors counts at the root of the tree, from their dot products: float64
    [..., k, k] -> [..., k]. A vector of zeros, or one that cancelled down to rounding, is left out:
    A(0, b) = b. What is not finite stays so, for the step to see."""
    k = dots.shape[-1]
    own = tf.linalg.diag_part(dots)[..., tf.newaxis, :]
    # one row per node of the present level, as weights of the k leaves
    nodes = tf.eye(k, batch_shape=dots.shape[:-2], dtype=dots.dtype)
    while nodes.shape[-2] > 1:
        a, b = nodes[..., 0::2, :], nodes[..., 1::2, :]
        a_b, a_a, b_b = (_sum(tf.matmul(x, dots) * y) for x, y in ((a, b), (a, a), (b, b)))
        no_a = a_a <= _NOTHING * _sum(tf.square(a) * own)
        no_b = b_b <= _NOTHING * _sum(tf.square(b) * own)
        a_b = tf.where(no_a | no_b, tf.zeros_like(a_b), a_b)
        nodes = _weight(a_b, a_a, no_a) * a + _weight(a_b, b_b, no_b) * b
    return nodes[..., 0, :]


def _sum(products: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(products, axis=-1, keepdims=True)


def _weight(dot: tf.Tensor, square: tf.Tensor, nothing: tf.Tensor) -> tf.Tensor:
    weight = 1 - tf.math.divide_no_nan(dot, 2 * square)
    return tf.where(nothing, tf.zeros_like(weight), weight)


def mix(vectors: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """sum_r w_r v_r: [k, n], float64 [k] -> [n]. Rounded once, so that opposites end at zero."""
    mixed = tf.linalg.matvec(tf.cast(vectors, tf.float64), weights, transpose_a=True)
    return tf.cast(mixed, vectors.dtype)


def collect(tensors: Sequence[tf.Tensor], size: int, name: str) -> list[tf.Tensor]:
    """This rank's share of each tensor as all ranks have it: [size, ceil(n / size)], row per rank.
    All tensors are of one type, and padded with zeros."""
    rows = [
        tf.reshape(tf.pad(flat, [[0, -flat.shape[0] % size]]), [size, -1])
        for flat in (tf.reshape(tensor, [-1]) for tensor in tensors)
    ]
    sent = tf.concat(rows, axis=1)
    received = tf.ensure_shape(alltoall(sent, f"{name}_collected"), sent.shape)
    return tf.split(received, [row.shape[1] for row in rows], axis=1)


def hand_back(
    shares: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape], size: int, name: str
) -> list[tf.Tensor]:
    """The whole tensors, equal on all ranks, from each rank's own shares [ceil(n / size)]."""
    mine = tf.concat(shares, axis=0)
    every = tf.ensure_shape(
        allgather(mine[tf.newaxis], f"{name}_handed_back"), [size, mine.shape[0]]
    )
    columns = tf.split(every, [share.shape[0] for share in shares], axis=1)
    return [
        tf.reshape(tf.reshape(column, [-1])[: math.prod(shape)], shape)
        for column, shape in zip(columns, shapes, strict=True)
    ]
