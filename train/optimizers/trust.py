"""Layer-wise rates: which variables they are for, and what they were in the last step."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf


def excluded(variable: tf.Variable, patterns: tuple[str, ...]) -> bool:
    """Whether a regular expression is found in the variable's name, as in 'block2_bn0/gamma:0'."""
    return any(re.search(pattern, variable.name) for pattern in patterns)


def where_both(weight_norm: tf.Tensor, update_norm: tf.Tensor, ratio: tf.Tensor) -> tf.Tensor:
    """``ratio``, or 1 where a norm is zero: a weight that starts at zero has to leave it."""
    return tf.where(tf.logical_and(weight_norm > 0, update_norm > 0), ratio, 1.0)


class TrustLog:
    """The adapted variables, and two float32 vectors with one place for each of them.

    Not part of an optimizer's state: every step writes all of it before anything reads it.
    """

    def __init__(self, variables: list[tf.Variable], exclude: tuple[str, ...]) -> None:
        adapted = [variable for variable in variables if not excluded(variable, exclude)]
        self._rows = {_key(variable): row for row, variable in enumerate(adapted)}
        self.ratios = tf.Variable(tf.ones(len(adapted)), trainable=False, name="trust_ratios")
        self.kept = tf.Variable(tf.zeros(len(adapted)), trainable=False, name="rates_kept")

    def adapts(self, variable: tf.Variable) -> bool:
        return _key(variable) in self._rows

    def record(self, variable: tf.Variable, ratio: tf.Tensor, kept: Any = 0.0) -> None:
        row = self._rows[_key(variable)]
        self.ratios[row].assign(ratio)
        self.kept[row].assign(kept)


def _key(variable: tf.Variable) -> str:
    """One for a variable and its copies under tf.distribute, which an update sees one by one."""
    if not isinstance(variable, tf.distribute.DistributedValues):
        container = getattr(variable.handle, "_distributed_container", None)
        variable = variable if container is None else container()
    return str(variable._unique_id)
