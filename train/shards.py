"""Each rank owns an equal share of every tensor: collect it from all ranks, hand the result back.

The two halves of a ring all-reduce with room for any arithmetic between them. Horovod's own
reductions add in the type that travels, and element by element; Adasum needs dot products, and
bfloat16 a sum in float32. A rank sends (k - 1)/k of its tensors in each half, so both together cost
what a ring all-reduce of the same type costs, whatever k (Patarasuk and Yuan 2009,
doi:10.1016/j.jpdc.2008.09.002, section 3).

Each element is computed once, by its owner, so all ranks end with the same bits even where their
processors add in different orders. Memory: about three copies of the tensors at once, in the type
that travels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import horovod.tensorflow as hvd
import tensorflow as tf


def collect(tensors: Sequence[tf.Tensor], size: int) -> list[tf.Tensor]:
    """This rank's share of each tensor as all ranks have it: [size, ceil(n / size)], row per rank.

    All tensors of one type; their n elements are padded with zeros up to a multiple of ``size``.
    """
    rows = [_rows(tensor, size) for tensor in tensors]
    sent = tf.concat(rows, axis=1)
    received = tf.ensure_shape(hvd.alltoall(sent), sent.shape)
    return tf.split(received, [row.shape[1] for row in rows], axis=1)


def hand_back(
    shares: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape], size: int
) -> list[tf.Tensor]:
    """The whole tensors, equal on all ranks, from each rank's own shares [ceil(n / size)]."""
    mine = tf.concat(shares, axis=0)
    every = tf.ensure_shape(hvd.allgather(mine[tf.newaxis]), [size, mine.shape[0]])
    columns = tf.split(every, [share.shape[0] for share in shares], axis=1)
    return [
        tf.reshape(tf.reshape(column, [-1])[: math.prod(shape)], shape)
        for column, shape in zip(columns, shapes, strict=True)
    ]


def _rows(tensor: tf.Tensor, size: int) -> tf.Tensor:
    flat = tf.reshape(tensor, [-1])
    padding = -flat.shape[0] % size
    return tf.reshape(tf.pad(flat, [[0, padding]]), [size, -1])
