"""The named optimizers as Keras objects; the distributed step reduces before they see it."""

from train.optimizers.build import build_optimizer
from train.optimizers.layerwise import optimizer_variables, trust_ratios, velocities

__all__ = ["build_optimizer", "optimizer_variables", "trust_ratios", "velocities"]
