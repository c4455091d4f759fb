"""The rate inside the velocity: Goyal et al. 2017 (1706.02677), remark on momentum correction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders import row
from tests.train.optimizers.toy import Toy
from tests.train.references.momentum_rules import sgd
from train.config.optimizer import Larc, Lars, Muon, NovoGradTfa, Sgd
from train.data.batches import Batches

pytestmark = pytest.mark.tf

NAME = "T3 momentum correction"
RISING = [0.1] * 50 + [1.0] * 10


def test_the_train_step_corrects(invariant: Any) -> None:
    """Through the real step, whose reduction is made to return ones."""
    import tensorflow as tf

    from train.models.layers import StepSeed
    from train.optimizers.build import build_optimizer
    from train.step.back_end import OverRanks
    from train.step.loss_scale import NoLossScale
    from train.step.step import TrainStep

    technique = row(optimizer=Sgd(momentum=0.9))
    inputs = tf.keras.Input((1,), dtype="uint8")
    scaled = tf.keras.layers.Rescaling(1.0)(inputs)
    logits = tf.keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros")(scaled)
    model = tf.keras.Model(inputs, logits)
    optimizer = build_optimizer(technique.optimizer, model.trainable_variables)
    ranks = OverRanks(technique, 1, NoLossScale())
    ranks._reduced = lambda given, squares: ([tf.ones_like(g) for g in given], squares)
    step = TrainStep(model, optimizer, technique, StepSeed(1), ranks, NoLossScale())
    count = len(RISING)
    step(Batches(np.ones((count, 1, 2, 1), np.uint8), np.array([[[0, 1]]] * count)), RISING, 0)
    # u = m u + g, w -= lr u, which needs none
    *_, plain = sgd(np.zeros(1), [np.ones(1)] * len(RISING), RISING, momentum=0.9)
    assert float(plain[0]) == pytest.approx(-140.744, abs=5e-4)
    error = float(np.abs(model.trainable_variables[0].numpy() / plain - 1).max())
    invariant(NAME, "g = 1, m = .9, lr .1 to 1: w = -140.744 in both forms", error, 1e-5)


def test_whose_slots_follow_the_rate() -> None:
    """Those that keep rate x gradient where their source has the rate outside; LARS' has it
    inside, in print."""
    from train.optimizers.layerwise import velocities

    for config, slots in (
        (Sgd(), 0), (Sgd(momentum=0.9), 1), (Sgd(momentum=0.9, weight_decay=0.1), 1),
        (Larc(), 1), (Larc(momentum=0), 0), (NovoGradTfa(), 1),
        (Lars(), 0), (Muon(dense=True), 0),
    ):  # fmt: skip
        toy = Toy(config, {"dense/kernel": np.ones((2, 2), np.float32)})
        assert len(velocities(toy.optimizer, config)) == slots, config
