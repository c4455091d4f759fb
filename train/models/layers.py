"""Layers whose randomness is a function of (seed, rank, step), so that a resumed run is exact; and
how graphs are made from functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def draw_number(step: int, micro: int) -> int:
    """What the draws of one of a step's accumulated batches are numbered by: of 64 bits the lower
    half is the step, so that the first batch has the step's own number and no two have the same."""
    return step + (micro << 32)


class StepSeed(tf.Module):
    """Two integers that all random layers of a model share: the rank's stream and the number of
    the draw, which is the step's, or that of :func:`draw_number`."""

    def __init__(self, stream: int) -> None:
        super().__init__(name="step_seed")
        with tf.device("CPU"):  # where random operations read their seeds
            self.value = tf.Variable([stream, 0], dtype=tf.int64, trainable=False, name="step_seed")

    def set_step(self, number: tf.Tensor) -> None:
        self.value.assign(tf.stack([self.value[0], tf.cast(number, tf.int64)]))


class SeededDropout(tf.keras.layers.Layer):
    """Dropout whose mask depends on (stream, step, layer) alone.

    Keras' own layer draws from a state that no checkpoint holds, and with equal global seeds all
    ranks draw the same mask.
    """

    def __init__(self, rate: float, index: int, seed: StepSeed, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.index = index
        # hidden from Keras' tracking: the seed belongs to the step, not to the layer's weights
        self._seed = (lambda: seed.value,)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        if not training:
            return inputs
        seed = tf.random.experimental.stateless_fold_in(self._seed[0](), self.index)
        return tf.nn.experimental.stateless_dropout(inputs, self.rate, seed=seed)


def graph(function: Callable[..., Any]) -> Any:
    """``tf.function`` without AutoGraph: no Python branch here depends on a tensor, so there is
    nothing to convert, which takes longer than the tracing itself and leaves files in /tmp when a
    rank is ended. A branch on a tensor is an error when the graph is made. One graph serves all
    batch sizes."""
    return tf.function(function, autograph=False, reduce_retracing=True)
