"""What all networks share: randomness that is a function of (seed, rank, step), so that a resumed
run is exact; how graphs are made from functions.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from train.tensorflow_internals import (
    RandomGenerator,
    all_layers,
    graph_outside_of_branches,
    with_autograph,
)


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
        with tf.device("CPU"):
            self.value.assign(tf.stack([self.value[0], tf.cast(number, tf.int64)]))


class SeededGenerator(RandomGenerator):
    """What a random layer of Keras draws from: a function of (stream, step, layer) alone. Keras'
    own has a state that no checkpoint holds, and with equal seeds all ranks draw equal masks."""

    def __init__(self, seed: StepSeed, index: int) -> None:
        super().__init__(0, rng_type="stateless")
        self._index = index
        # hidden from Keras' tracking: the seed belongs to the step, not to the layer's weights
        self._value: Callable[[], tf.Tensor] = lambda: seed.value
        #: Draws since the forward pass began; None: the layer draws once in each.
        self._draws: int | None = None
        self._graph: Any = None  # of that pass
        #: A draw stands in a graph of its own, a loop's or a function's, which may run several
        #: times in a pass, each with the same numbers.
        self.repeats = False

    def begin(self) -> None:
        """A forward pass, in which the layer may draw several times."""
        self._draws, self._graph = 0, tf.compat.v1.get_default_graph()

    def make_seed_for_stateless_op(self) -> tf.Tensor:
        own = tf.random.experimental.stateless_fold_in(self._value(), self._index)
        if self._draws is None:
            return own
        self.repeats |= graph_outside_of_branches() is not self._graph
        self._draws += 1
        count = self._draws
        return own if count == 1 else tf.random.experimental.stateless_fold_in(own, count)


def random_layers(model: tf.keras.Model) -> list[tf.keras.layers.Layer]:
    kind = tf.keras.__internal__.layers.BaseRandomLayer
    return [layer for layer in all_layers(model) if isinstance(layer, kind)]


def seed_random_layers(model: tf.keras.Model, seed: StepSeed) -> list[SeededGenerator]:
    """Let each random layer, dropout above all, draw from ``seed``; the generators, one a layer."""
    layers = random_layers(model)
    for index, layer in enumerate(layers):
        layer._random_generator = SeededGenerator(seed, index)
    return [layer._random_generator for layer in layers]


class OwnNetwork(tf.keras.layers.Layer):
    """Holds a network that is not ours, and begins each forward pass through it."""

    def __init__(self, network: tf.keras.Model, generators: list[SeededGenerator]) -> None:
        super().__init__(name="network", dtype="float32")
        self.network = network
        self._generators = tuple(generators)

    def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        for generator in self._generators:
            generator.begin()
        # as Keras itself trains it: layers with a branch on a tensor need AutoGraph
        with with_autograph():
            return self.network(inputs, training=training)


def user_network(model: tf.keras.Model) -> tf.keras.Model:
    """What ``build`` returned, with the weights of ``model``; a network of ours is its own."""
    return next((one.network for one in model.layers if isinstance(one, OwnNetwork)), model)


def network_digest(model: tf.keras.Model) -> str:
    """Of what the network computes; empty for a network of ours, which the config determines."""
    return getattr(user_network(model), "digest", "")


def numbers_in(variables: Iterable[Any]) -> int:
    """How many numbers the variables hold."""
    return sum(math.prod(variable.shape) for variable in variables)


def stream_of(seed: int, part: object) -> int:
    """31 bits: the stream of one rank, or of another part of a run, that has ``seed``."""
    digest = hashlib.sha256(f"{seed}/{part}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def graph(function: Callable[..., Any]) -> Any:
    """``tf.function`` without AutoGraph, which takes longer than the tracing and leaves files
    in /tmp when a rank is ended: no Python branch here depends on a tensor. One graph serves all
    batch sizes."""
    return tf.function(function, autograph=False, reduce_retracing=True)
