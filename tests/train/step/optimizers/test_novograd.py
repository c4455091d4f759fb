"""NovoGrad beyond its rule, which test_optimizers proves: branches that open late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.train.step.optimizers.toy import first_weights, gradients, length, moves, one
from train.config.optimizer import NovoGrad, NovoGradTfa

pytestmark = pytest.mark.tf

RATE = 0.01
WEIGHT = first_weights()["conv/kernel"]
GRADIENT = gradients(0)["conv/kernel"]


def test_a_branch_that_opens_late_starts_with_a_first_step(invariant: Any) -> None:
    """With zero_gamma the first gradient of a branch is zero, its second is its first."""
    given = [np.zeros_like(GRADIENT), GRADIENT]
    closed, opened = moves(one(NovoGrad(), WEIGHT, given, [RATE, RATE]))
    assert not closed.any()
    error = length(opened) / RATE - 1
    invariant("T9 NovoGrad", "the first gradient that is not zero: |dw| = lr", error, 1e-5)
    # tensorflow-addons' starts with 1 / sqrt(1 - b2)
    _, long = moves(one(NovoGradTfa(), WEIGHT, given, [RATE, RATE]))
    assert length(long) / RATE == pytest.approx(1 / np.sqrt(1 - 0.999), rel=1e-3)


@pytest.mark.parametrize(("averaging", "steady"), [(False, 20.0), (True, 1.0)])
def test_the_steady_step_under_a_constant_gradient(
    averaging: bool, steady: float, invariant: Any
) -> None:
    """1 / (1 - 0.95) rates without averaging, one rate with it; 0.95^300 is 2e-7."""
    config = NovoGrad(averaging=averaging)
    path = one(config, 0 * WEIGHT, [GRADIENT] * 300, [RATE] * 300)
    form = "lr with averaging" if averaging else "lr / (1 - b1) without averaging"
    error = length(moves(path)[-1]) / RATE / steady - 1
    invariant("T9 NovoGrad", f"constant g: |dw| tends to {form}", error, 1e-4)
