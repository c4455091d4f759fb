"""NovoGrad: Algorithm 1 of Ginsburg et al. 2019 (1905.11286), and tensorflow-addons' form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.train.optimizers.toy import first_weights, gradients, length, moves, one, relative
from train.config.optimizer import NovoGrad, NovoGradTfa

pytestmark = pytest.mark.tf

NAME, RATE = "T9 NovoGrad", 0.01
WEIGHT = first_weights()["conv/kernel"]
GRADIENT = gradients(0)["conv/kernel"]
STILL = np.zeros_like(GRADIENT)


@pytest.mark.parametrize("averaging", [False, True])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_first_step_is_as_long_as_the_rate(
    averaging: bool, scale: float, invariant: Any
) -> None:
    config = NovoGrad(averaging=averaging)
    (step,) = moves(one(config, WEIGHT, [scale * GRADIENT], [RATE]))
    invariant(NAME, "step 1, decay 0: |dw| = lr", length(step) / RATE - 1, 1e-5)


@pytest.mark.parametrize(("averaging", "steady"), [(False, 20.0), (True, 1.0)])
def test_the_steady_step_under_a_constant_gradient(
    averaging: bool, steady: float, invariant: Any
) -> None:
    """1 / (1 - 0.95) rates without averaging, one rate with it; 0.95^300 is 2e-7."""
    config = NovoGrad(averaging=averaging)
    path = one(config, 0 * WEIGHT, [GRADIENT] * 300, [RATE] * 300)
    error = length(moves(path)[-1]) / RATE / steady - 1
    form = "lr with averaging" if averaging else "lr / (1 - b1) without averaging"
    invariant(NAME, f"constant g: |dw| tends to {form}", error, 1e-4)


def test_it_does_not_see_the_gradients_scale(invariant: Any) -> None:
    given = [gradients(step)["conv/kernel"] for step in range(20)]
    plain = one(NovoGrad(), WEIGHT, given, [RATE] * 20)[-1] - WEIGHT
    scaled = one(NovoGrad(), WEIGHT, [1000 * g for g in given], [RATE] * 20)[-1] - WEIGHT
    invariant(NAME, "20 steps with g and with 1000 g", relative(scaled, plain), 1e-5)


def test_its_decay_does_not_see_the_gradients_length(invariant: Any) -> None:
    def decayed(scale: float) -> np.ndarray:
        with_it, without = (
            one(NovoGrad(weight_decay=d), WEIGHT, [scale * GRADIENT], [RATE])[-1] for d in (0.5, 0)
        )
        return without - with_it

    for scale in (1e-2, 1.0, 1e2):
        error = relative(decayed(scale), RATE * 0.5 * WEIGHT)
        invariant(NAME, "decay is lr d w for g, 0.01 g and 100 g", error, 1e-4)


def test_a_branch_that_opens_late_starts_with_a_first_step(invariant: Any) -> None:
    """With zero_gamma the first gradient of a branch is zero, its second is its first."""
    path = one(NovoGrad(), WEIGHT, [STILL, GRADIENT], [RATE, RATE])
    closed, opened = moves(path)
    assert not closed.any()
    invariant(
        NAME, "the first gradient that is not zero: |dw| = lr", length(opened) / RATE - 1, 1e-5
    )
    # where tensorflow-addons' starts with 1 / sqrt(1 - b2)
    _, long = moves(one(NovoGradTfa(), WEIGHT, [STILL, GRADIENT], [RATE, RATE]))
    assert length(long) / RATE == pytest.approx(1 / np.sqrt(1 - 0.999), rel=1e-3)


def test_what_is_excluded_is_normalised_but_not_decayed() -> None:
    config = NovoGrad(weight_decay=0.5)
    (step,) = moves(one(config, WEIGHT, [GRADIENT], [RATE], name="bn/gamma"))
    assert relative(step, RATE * GRADIENT / length(GRADIENT)) < 1e-4
    (theirs,) = moves(one(NovoGradTfa(weight_decay=0.5), WEIGHT, [GRADIENT], [RATE], "bn/gamma"))
    assert relative(theirs, RATE * (GRADIENT / length(GRADIENT) + 0.5 * WEIGHT)) < 1e-4


def test_tensorflow_addons_keeps_the_rate_in_its_sum_so_its_sum_follows_the_rate() -> None:
    from tests.train.optimizers.toy import Toy
    from train.optimizers import velocities

    config = NovoGradTfa()
    toy = Toy(config, {"conv/kernel": WEIGHT})
    toy.step({"conv/kernel": GRADIENT}, RATE)
    (kept,) = velocities(toy.optimizer, config)
    assert length(kept.numpy()) == pytest.approx(RATE, rel=1e-4)
    ours = Toy(NovoGrad(), {"conv/kernel": WEIGHT})
    assert velocities(ours.optimizer, NovoGrad()) == []
