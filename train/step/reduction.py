"""What becomes of the ranks' gradients: one list, equal on all ranks, by the technique's rule.

Gradients travel in buckets: neighbours in the order of the backward pass, last layers first, as one
message each. A bucket leaves as soon as its last gradient is there, while others are computed. What
is in it depends on the gradients' sizes alone, so a ring adds them up in the same order in every
run. docs/performance.md shows what the size of buckets costs.

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
from collections.abc import Callable, Sequence

import tensorflow as tf

from train.config.technique import Technique
from train.distributed.communicator import allreduce_mean, allreduce_sum
from train.step.adasum import collect, hand_back, over_ranks

#: A bucket has at least so many bytes, and at least this share of all gradients. More messages
#: overlap no more of a pass, and each costs a negotiation.
BUCKET_BYTES, BUCKETS = 1 << 20, 6

Tensors = list[tf.Tensor]


def reducer(
    technique: Technique, size: int
) -> Callable[[Tensors, Tensors], tuple[Tensors, Tensors]]:
    """Makes this rank's float32 gradients and scalars what all ranks have, in the graph: gradients
    by the technique's rule, scalars by their mean. A world of one has nothing to reduce, nor to
    compress."""
    if size == 1:
        return lambda gradients, scalars: (gradients, scalars)
    if technique.reduction == "adasum":
        return lambda gradients, scalars: over_ranks(gradients, scalars, size)
    send = {"none": _mean, "fp16": _fp16, "bf16": _bf16}[technique.compression]

    def reduced(gradients: Tensors, scalars: Tensors) -> tuple[Tensors, Tensors]:
        mean = list(gradients)
        cut = buckets([4 * g.shape.num_elements() for g in gradients], one=not technique.overlaps)
        # with the last bucket, if that travels as it is
        with_last = scalars if send is _mean else []
        for number, places in enumerate(cut):
            own = [gradients[place] for place in places]
            own += with_last if number == len(cut) - 1 else []
            got = _cut(send(_joined(own), f"gradients_{number}", size), own)
            for place, one in zip(places, got, strict=False):
                mean[place] = one
        if with_last:
            return mean, got[-len(scalars) :]
        return mean, _cut(allreduce_mean(_joined(scalars), "squares"), scalars)

    return reduced


def buckets(sizes: Sequence[int], *, one: bool = False) -> list[list[int]]:
    """Places of the gradients of each bucket. A large one is a bucket by itself, which saves a copy
    of it; the last bucket waits for the end of the backward pass.

    sizes: bytes, in the order of the forward pass; one: all in one bucket.
    """
    full = math.inf if one else max(BUCKET_BYTES, sum(sizes) / BUCKETS)
    cut: list[list[int]] = []
    held: list[int] = []
    for place in reversed(range(len(sizes))):
        if sizes[place] >= full and place:  # the first layer's, which comes last, in any case
            cut.append([place])
            continue
        if sum(sizes[of] for of in held) >= full:
            cut.append(held)
            held = []
        held.append(place)
    return [*cut, held]


def _joined(tensors: Tensors) -> tf.Tensor:
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def _cut(joined: tf.Tensor, like: Tensors) -> Tensors:
    """The tensors that were joined, or what became of them."""
    pieces = tf.split(joined, [tensor.shape.num_elements() for tensor in like])
    return [tf.reshape(piece, of.shape) for piece, of in zip(pieces, like, strict=True)]


def _mean(joined: tf.Tensor, name: str, size: int) -> tf.Tensor:
    return allreduce_mean(joined, name)


def _fp16(joined: tf.Tensor, name: str, size: int) -> tf.Tensor:
    # divided after the cast back: dividing first would lose the smallest elements
    return tf.cast(allreduce_sum(tf.cast(joined, tf.float16), name), tf.float32) / size


def _bf16(joined: tf.Tensor, name: str, size: int) -> tf.Tensor:
    (share,) = collect([_to_bits(joined)], size, name)
    mean = tf.reduce_mean(_from_bits(share), axis=0)
    (whole,) = hand_back([_to_bits(mean)], [joined.shape], size, name)
    return _from_bits(whole)


def _to_bits(tensor: tf.Tensor) -> tf.Tensor:
    """bfloat16 under the name of float16, which is moved and never added here: the only type of 16
    bits that Horovod hands to NCCL."""
    return tf.bitcast(tf.cast(tensor, tf.bfloat16), tf.float16)


def _from_bits(bits: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.bitcast(bits, tf.bfloat16), tf.float32)
