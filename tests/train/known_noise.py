"""Gradients whose noise is known: Gaussian ones, and what a run measures of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

S2 = "S2 noise scale"
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """Per-image gradients N(gradient, diag(variances)), k small batches of b images a step."""

    gradient: Array
    variances: Array
    k: int
    b: int

    @property
    def big(self) -> int:
        return self.k * self.b

    @property
    def trace(self) -> float:
        return float(self.variances.sum())

    @property
    def gradient_sq(self) -> float:
        return float(self.gradient @ self.gradient)

    def sd_of_estimates(self) -> tuple[float, float]:
        """Of one step's S and G2: the moments of quadratic forms of a Gaussian."""
        squares = float((self.variances**2).sum())
        sd_trace = math.sqrt(2 * squares / (self.k - 1))
        mixed = 4 * float(self.gradient**2 @ self.variances) / self.big
        return sd_trace, math.sqrt(mixed + 2 * squares / self.big**2 * (1 + 1 / (self.k - 1)))


def known(k: int, b: int, d: int = 40, noise_scale: float = 500.0) -> World:
    """Unequal variances, and a gradient of the length that gives the noise scale."""
    rng = np.random.default_rng(9)
    variances = 1 / np.arange(1, d + 1)
    gradient = rng.standard_normal(d)
    gradient *= math.sqrt(variances.sum() / noise_scale) / np.linalg.norm(gradient)
    return World(gradient, variances, k, b)


def norms(gradients: Array) -> tuple[Array, Array]:
    """(small, big) of each step from the small batches' gradients, [steps, k, d]."""
    return (gradients**2).sum(-1).mean(1), (gradients.mean(1) ** 2).sum(-1)


def drawn(world: World, steps: int, seed: int, *, images: bool = False) -> tuple[Array, Array]:
    """Norms of some steps; ``images``: each image's gradient drawn, else that of the batches."""
    rng = np.random.default_rng(seed)
    d = len(world.gradient)
    noise = np.empty((steps, world.k, d))
    for step in noise:
        if images:
            step[:] = rng.standard_normal((world.k, world.b, d)).mean(1)
        else:
            step[:] = rng.standard_normal((world.k, d)) / math.sqrt(world.b)
    return norms(world.gradient + noise * np.sqrt(world.variances))
