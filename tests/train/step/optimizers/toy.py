"""A few small variables and what an optimizer does to them, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

SHAPES = {
    "conv/kernel": (3, 3, 2, 4),
    "conv/bias": (4,),
    "bn/gamma": (4,),
    "bn/beta": (4,),
    "dense/kernel": (8, 5),
}
ADAPTED = ("conv/kernel", "dense/kernel")  # by the default patterns
RATES = [0.01] * 10 + [0.03] * 10 + [0.03 * 0.8**step for step in range(10)]

Weights = dict[str, np.ndarray]


def first_weights() -> Weights:
    rng = np.random.default_rng(0)
    return {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in SHAPES.items()}


def gradients(step: int, scale: float = 1.0) -> Weights:
    """Another direction and length in every step."""
    rng = np.random.default_rng([9, step])
    return {
        name: (scale * (1 + step % 7) * rng.normal(0.1, 1, shape)).astype(np.float32)
        for name, shape in SHAPES.items()
    }


class Toy:
    """Variables under one optimizer; velocities follow a change of the rate as in training."""

    def __init__(self, config: Any, weights: Weights | None = None) -> None:
        import tensorflow as tf

        from train.step.optimizers.build import build_optimizer
        from train.step.optimizers.layerwise import velocities

        given = first_weights() if weights is None else weights
        self.variables = [
            tf.Variable(np.asarray(w, np.float32), name=name) for name, w in given.items()
        ]
        kernels = [variable for variable in self.variables if len(variable.shape) == 4]
        self.optimizer = build_optimizer(config, self.variables, kernels)
        self.velocities = velocities(self.optimizer, config)
        self.last_rate: float | None = None

    def step(self, given: Weights, rate: float) -> None:
        import tensorflow as tf

        for velocity in self.velocities:
            velocity.assign(velocity * ((rate / self.last_rate) if self.last_rate else 1.0))
        self.last_rate = rate
        self.optimizer.learning_rate.assign(rate)
        pairs = zip([tf.constant(g) for g in given.values()], self.variables, strict=True)
        self.optimizer.apply_gradients(pairs)

    def weights(self) -> Weights:
        """float64, by name without the suffix of an output."""
        return {v.name.split(":")[0]: v.numpy().astype(np.float64) for v in self.variables}


def run(config: Any, rates: Sequence[float]) -> list[Weights]:
    """The weights before the first step and after each."""
    toy = Toy(config)
    path = [toy.weights()]
    for step, rate in enumerate(rates):
        toy.step(gradients(step), rate)
        path.append(toy.weights())
    return path


def one(
    config: Any,
    weight: Any,
    steps: Sequence[Any],
    rates: Sequence[float],
    name: str = "dense/kernel",
) -> list[np.ndarray]:
    """The path of a single variable under the given gradients, float64."""
    toy = Toy(config, {name: np.asarray(weight, np.float32)})
    path = [toy.weights()[name]]
    for gradient, rate in zip(steps, rates, strict=True):
        toy.step({name: np.asarray(gradient, np.float32)}, rate)
        path.append(toy.weights()[name])
    return path


def moves(path: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What each step subtracted."""
    return [before - after for before, after in pairwise(path)]


def length(array: np.ndarray) -> float:
    return float(np.linalg.norm(array))


def relative(found: np.ndarray, expected: np.ndarray) -> float:
    """Norm of the difference over the norm of what is expected."""
    return length(found - expected) / length(expected)
