"""Validation on the whole held-out split.

Each image counts once: the split is sharded over the ranks, and sums are reduced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from train.config.run import RunConfig
from train.data.dataset import Dataset
from train.data.sampling import Indices, evaluation_shard
from train.distributed.communicator import Ranks, Sums
from train.models.layers import graph
from train.models.networks import a_sigmoid_input
from train.trainer.classification import count

#: Bounds of one forward pass, a matter of memory and not of results: 500 images of 32x32 pixels,
#: 41 of 224x224. What a network of others needs for an image is not known: it gets as many as it
#: trains on at once, or a few.
_IMAGES, _PIXELS, _FEW = 500, 2**21, 16


class Evaluation(NamedTuple):
    loss: float  # mean cross-entropy per image
    accuracy: float
    images: int  # over all ranks
    counts: tuple[int, ...]  # of :func:`train.trainer.classification.count`
    sigmoid_input: tuple[float, ...] = ()  # see EpochRecord


class Evaluator:
    """Evaluates the model's present weights: each rank counts on its shard, and the sums of all
    ranks' counts are the evaluation."""

    def __init__(
        self, config: RunConfig, model: tf.keras.Model, data: Dataset, ranks: Ranks,
        beat: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        self.beat = beat
        watched = a_sigmoid_input(model)
        self.watches = watched is not None
        outputs = [model.output, watched] if self.watches else [model.output]
        self.model = tf.keras.Model(model.input, outputs)
        self.images, self.labels = data.validation_x, data.validation_y
        self.classes = len(data.classes)
        shard = evaluation_shard(len(self.labels), ranks.rank, ranks.size)
        most = -(-len(self.labels) // ranks.size)  # of a rank: to compute more is of no use
        self.batch = min(images_at_once(config, *self.images.shape[1:3]), most)
        self.parts = [shard[i : i + self.batch] for i in range(0, len(shard), self.batch)]

    def counts(self) -> Sums:
        """Of this rank's shard, to be added up over the ranks."""
        # sums, not means, are reduced: shards differ by one image, and a mean of means is biased
        loss = 0.0
        mine = count([], [], self.classes)
        inputs = np.zeros(len(self.labels) if self.watches else 0)
        for number, part in enumerate(self.parts, 1):
            self.beat(f"validating, part {number} of {len(self.parts)}")
            lost, predicted, *watched = self.answers(part)
            loss += float(lost)
            mine += count(self.labels[part], predicted.numpy()[: len(part)], self.classes)
            for values in watched:
                inputs[part] = values.numpy()[: len(part)]
        # exact in float64 up to 2^53
        return np.concatenate([mine, inputs, [loss]])

    def evaluation(self, total: Sums) -> Evaluation:
        """From the sums of all ranks' counts."""
        inputs = len(self.labels) if self.watches else 0
        counts, watched, (loss,) = np.split(total, [len(total) - 1 - inputs, len(total) - 1])
        support, _, hits = counts[: 3 * self.classes].reshape(3, -1).sum(axis=1)
        assert support == len(self.labels), f"evaluated {support} of {len(self.labels)} images"
        return Evaluation(
            loss=float(loss / support),
            accuracy=float(hits / support),
            images=int(support),
            counts=tuple(map(int, counts)),
            sigmoid_input=tuple(np.percentile(watched, (15, 50, 85)).tolist())
            if inputs and np.isfinite(watched).all()
            else (),
        )

    def answers(self, part: Indices) -> tuple[tf.Tensor, ...]:
        """Of validation images, at least one, what :meth:`_forward` gives."""
        # filled up with copies that weigh nothing: one shape means one traced graph
        rows = np.pad(part, (0, self.batch - len(part)), mode="edge")
        weights = np.float32(np.arange(self.batch) < len(part))
        return self._forward(self.images[rows], self.labels[rows], weights)

    @graph
    def _forward(
        self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Weighted sum of the losses, the predicted class of each image, [b], and what a sigmoid
        gets, [b], where there is one."""
        logits, *watched = tf.nest.flatten(self.model(images, training=False))
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_sum(losses * weights), tf.argmax(logits, axis=-1), *watched


def images_at_once(config: RunConfig, height: int, width: int) -> int:
    most = max(config.batch_per_rank, _FEW) if config.runs_as_built else _IMAGES
    return max(1, min(most, _IMAGES, _PIXELS // (height * width)))
