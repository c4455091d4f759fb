"""What becomes of the ranks' gradients: one list, equal on all ranks, by the technique's rule."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import horovod.tensorflow as hvd
import tensorflow as tf

from train.adasum import over_ranks
from train.compress import mean_bf16, mean_fp16
from train.technique import Technique


class Reduced(NamedTuple):
    """What clipping and the optimizer get, and what the noise scale needs; equal on all ranks."""

    gradients: list[tf.Tensor]  # float32
    small: tf.Tensor  # float32 scalar: mean over the ranks of |own gradient|^2


# (this rank's float32 gradients, their squared norm as a float32 scalar) -> Reduced, in the graph
Reducer = Callable[[list[tf.Tensor], tf.Tensor], Reduced]


def build_reducer(technique: Technique, size: int) -> Reducer:
    """The reduction of one technique over ``size`` ranks.

    Alone there is nothing to reduce, nor to compress: a world of one computes in float32.

    Raises:
        ValueError: Adasum over a number of ranks that is no power of two (when traced).
    """
    if size == 1:
        return Reduced
    if technique.reduction == "adasum":
        return partial(_adasum, size=size)
    if technique.compression == "fp16":
        return partial(_fp16, size=size)
    if technique.compression == "bf16":
        return partial(_bf16, size=size)
    return _mean


def _mean(gradients: list[tf.Tensor], square: tf.Tensor) -> Reduced:
    """One group, so one negotiation: the scalar costs no round of its own."""
    *mean, small = hvd.grouped_allreduce([*gradients, square], op=hvd.Average)
    return Reduced(mean, small)


def _fp16(gradients: list[tf.Tensor], square: tf.Tensor, size: int) -> Reduced:
    # not in the group, which has one type
    return Reduced(mean_fp16(gradients, size), hvd.allreduce(square, op=hvd.Average))


def _bf16(gradients: list[tf.Tensor], square: tf.Tensor, size: int) -> Reduced:
    return Reduced(mean_bf16(gradients, size), hvd.allreduce(square, op=hvd.Average))


def _adasum(gradients: list[tf.Tensor], square: tf.Tensor, size: int) -> Reduced:
    return Reduced(*over_ranks(gradients, square, size))
