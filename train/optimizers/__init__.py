"""The named optimizers as Keras objects; the distributed step reduces before they see it."""

from train.optimizers.build import build_optimizer
from train.optimizers.layerwise import (
    adapted_variables,
    optimizer_variables,
    trust_ratios,
    velocities,
)

__all__ = [
    "adapted_variables",
    "build_optimizer",
    "optimizer_variables",
    "trust_ratios",
    "velocities",
]
