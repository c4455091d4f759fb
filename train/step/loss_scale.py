"""Dynamic loss scaling for float16 (Micikevicius et al. 2018, 1710.03740, section 3.2).

float16 loses gradients below 6e-8. The loss is multiplied before the backward pass, the gradients
divided after it; where the factor was too large, gradients are not finite, that step is skipped and
the factor halved. Own rather than Keras' LossScaleOptimizer, which hides momentum and rate of the
optimizer inside it and decides by the gradients of one rank.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


class LossScale(tf.Module):
    """The factor, a power of two: to multiply and divide by it rounds nothing. ``variables`` are
    its whole state. All methods are for use in a graph."""

    def __init__(self, initial: float = 2.0**15, grow_after: int = 2000) -> None:
        """grow_after: steps in a row with finite gradients."""
        super().__init__(name="loss_scale")
        self.scale = tf.Variable(initial, dtype=tf.float32, trainable=False, name="loss_scale")
        self.good_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="good_steps")
        self._grow_after = grow_after

    def scaled(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """float32: what to differentiate in the loss's place, what travels in float16."""
        return [value * self.scale for value in values]

    def unscaled(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """float32 gradients of the loss itself; what overflowed stays infinite or NaN."""
        return [gradient / self.scale for gradient in gradients]

    def update(self, finite: tf.Tensor) -> None:
        """After each step, by whether the reduced gradient is finite. If not: half the scale, at
        least 1. Finite ``grow_after`` times in a row: twice the scale, if float32 holds it."""
        good = tf.where(finite, self.good_steps + 1, 0)
        grow = good >= self._grow_after
        double = self.scale * 2
        grown = tf.where(grow & tf.math.is_finite(double), double, self.scale)
        self.scale.assign(tf.where(finite, grown, tf.maximum(self.scale / 2, 1.0)))
        self.good_steps.assign(tf.where(grow, tf.zeros_like(good), good))


class NoLossScale:
    """The same for float32 and bfloat16, whose range needs none: changes nothing, holds nothing."""

    variables: tuple[tf.Variable, ...] = ()

    def scaled(self, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return list(values)

    def unscaled(self, gradients: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return list(gradients)

    def update(self, finite: tf.Tensor) -> None:
        return
