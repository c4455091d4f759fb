"""Layers whose randomness is a function of (seed, rank, step), so that a resumed run is exact."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class StepSeed(tf.Module):
    """Two integers that all random layers of a model share: the rank's stream and the step."""

    def __init__(self, stream: int) -> None:
        super().__init__(name="step_seed")
        self.value = tf.Variable([stream, 0], dtype=tf.int32, trainable=False, name="step_seed")

    def set_step(self, step: tf.Tensor) -> None:
        self.value.assign(tf.stack([self.value[0], tf.cast(step, tf.int32)]))


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
