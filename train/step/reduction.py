"""What becomes of the ranks' gradients: one list, equal on all ranks, by the technique's rule.

With compression they travel in 16 bits.

fp16 is Horovod's own order: cast, add over the ranks in fp16, cast back. Elements above 65,504 or
with a sum above it become infinite, which the step must see; elements below 6e-8 become zero. A
same-signed element's relative error is at most (k + 1) 2^-11: k casts and k - 1 additions. On a
processor without fp16 arithmetic Gloo's additions take longer than in float32.

bf16 keeps float32's range. Horovod 0.28.1 takes no bfloat16 in any of its operations, so here the
bits travel as another type of 16 bits, the owner of a share adds it up in float32, and the mean is
rounded once more on its way back: relative error at most about 2 x 2^-8 whatever k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import horovod.tensorflow as hvd
import tensorflow as tf

from train.config.technique import Technique
from train.step.adasum import collect, hand_back, over_ranks

#: Gradients of at least so many bytes travel by themselves. Each message costs a negotiation; a
#: group waits for its last member, which may well be computed last.
ALONE_BYTES = 1 << 16

#: float32: what clipping and the optimizer get, and the mean over the ranks of |own gradient|^2.
Reduced = tuple[list[tf.Tensor], tf.Tensor]


def build_reducer(
    technique: Technique, size: int
) -> Callable[[list[tf.Tensor], tf.Tensor], Reduced]:
    """Makes Reduced of this rank's float32 gradients and their squared norm, a float32 scalar, in
    the graph. A world of one has nothing to reduce, nor to compress."""
    if size == 1:
        return lambda gradients, square: (gradients, square)
    if technique.reduction == "adasum":
        return partial(over_ranks, size=size)
    if technique.compression == "fp16":
        return partial(_fp16, size=size)
    if technique.compression == "bf16":
        return partial(_bf16, size=size)
    # without overlap one group, so one negotiation: the scalar costs no round of its own
    return partial(_mean, alone=ALONE_BYTES if technique.overlaps else math.inf)


def _mean(gradients: list[tf.Tensor], square: tf.Tensor, alone: float) -> Reduced:
    """Gradients of at least ``alone`` bytes travel as soon as each is there, those of the last
    layers first, as the backward pass goes, and overlap the rest of it; all others go together at
    its end."""
    mean = list(gradients)
    small = [n for n, g in enumerate(gradients) if 4 * g.shape.num_elements() < alone]
    for number in reversed(range(len(gradients))):
        if number not in small:
            (mean[number],) = _grouped([gradients[number]], number)
    *together, own = _grouped([*(gradients[n] for n in small), square], len(gradients))
    for number, one in zip(small, together, strict=True):
        mean[number] = one
    return mean, own


def _grouped(tensors: list[tf.Tensor], number: int) -> list[tf.Tensor]:
    """By a name of its own: the same on all ranks, wherever in a graph it stands."""
    return list(
        hvd.grouped_allreduce(
            tensors, op=hvd.Average, name=f"gradients_{number}", ignore_name_scope=True
        )
    )


def _fp16(gradients: list[tf.Tensor], square: tf.Tensor, size: int) -> Reduced:
    halves = [tf.cast(gradient, tf.float16) for gradient in gradients]
    summed = hvd.grouped_allreduce(halves, op=hvd.Sum)
    # divided after the cast back: dividing first would lose the smallest elements
    mean = [tf.cast(total, tf.float32) / size for total in summed]
    # not in the group, which has one type
    return mean, hvd.allreduce(square, op=hvd.Average)


def _bf16(gradients: list[tf.Tensor], square: tf.Tensor, size: int) -> Reduced:
    shares = collect([_to_bits(gradient) for gradient in gradients], size)
    means = [tf.reduce_mean(_from_bits(share), axis=0) for share in shares]
    whole = hand_back(
        [_to_bits(mean) for mean in means], [gradient.shape for gradient in gradients], size
    )
    mean = [_from_bits(bits) for bits in whole]
    return mean, hvd.allreduce(square, op=hvd.Average)


def _to_bits(tensor: tf.Tensor) -> tf.Tensor:
    """bfloat16 under the name of float16, which is moved and never added here: the only type of 16
    bits that Horovod hands to NCCL."""
    return tf.bitcast(tf.cast(tensor, tf.bfloat16), tf.float16)


def _from_bits(bits: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitcast(bits, tf.bfloat16), tf.float32)
