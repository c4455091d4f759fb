"""LARS: Algorithm 1 of You et al. 2017 (1708.03888), and nothing that only shares its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobs.config.techniques import load_techniques
from tests.train.optimizers.toy import (
    ADAPTED,
    SHAPES,
    Toy,
    first_weights,
    gradients,
    length,
    moves,
    one,
    relative,
    run,
)
from train.config.optimizer import Lars, Sgd
from train.config.technique import Technique

pytestmark = pytest.mark.tf

NAME, RATE, ETA = "T6 LARS", 2.0, 0.001
WEIGHT = first_weights()["conv/kernel"]
GRADIENT = gradients(0)["conv/kernel"]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_first_step_does_not_see_the_gradients_scale(scale: float, invariant: Any) -> None:
    config = Lars(weight_decay=0, eta=ETA)
    (step,) = moves(one(config, WEIGHT, [scale * GRADIENT], [RATE]))
    error = length(step) / (RATE * ETA * length(WEIGHT)) - 1
    invariant(NAME, "decay 0: first step lr eta |w| for g, 1e-4 g and 1e4 g", error, 2e-5)


def test_with_decay_a_step_is_parallel_to_the_decayed_gradient(invariant: Any) -> None:
    """Where the two are parallel the bound is met with equality, so both cases are here."""
    for gradient in (GRADIENT, 0.01 * GRADIENT, 3 * WEIGHT):
        config = Lars(weight_decay=0.5, eta=ETA)
        (step,) = moves(one(config, WEIGHT, [gradient], [RATE]))
        direction = gradient + 0.5 * WEIGHT.astype(np.float64)
        ratio = length(step) / (RATE * ETA * length(WEIGHT))
        invariant(NAME, "decay > 0: first step not above lr eta |w|", max(0.0, ratio - 1), 2e-5)
        error = relative(step / length(step), direction / length(direction))
        invariant(NAME, "decay > 0: step parallel to g + decay w", error, 5e-5)
    assert ratio == pytest.approx(1, rel=1e-4)


def test_excluded_variables_take_sgds_steps_bit_for_bit(invariant: Any) -> None:
    """As Keras has them: without decay, and at one rate, since LARS' velocity is not corrected."""
    lars = run(Lars(weight_decay=0.1), [0.02] * 20)
    sgd = run(Sgd(momentum=0.9), [0.02] * 20)
    pairs = list(zip(lars, sgd, strict=True))
    for name in set(SHAPES) - set(ADAPTED):
        differ = sum(not np.array_equal(a[name], b[name]) for a, b in pairs)
        invariant(NAME, "excluded variables: steps that differ from SGD's", differ, 0)
    assert all(not np.array_equal(a["conv/kernel"], b["conv/kernel"]) for a, b in pairs[1:])


def test_excluded_variables_have_a_rate_of_their_own(invariant: Any) -> None:
    """That of the adapted ones, 1 to 10, is no rate for a plain step."""
    lars = run(Lars(weight_decay=0.1, rest_rate=0.01), [2.0] * 20)
    sgd = run(Sgd(momentum=0.9), [0.02] * 20)
    for name in set(SHAPES) - set(ADAPTED):
        error = relative(lars[-1][name] - lars[0][name], sgd[-1][name] - sgd[0][name])
        invariant(NAME, "excluded variables: SGD's steps at rest_rate times the rate", error, 1e-5)
    usual = run(Lars(weight_decay=0.1), [2.0] * 20)
    assert np.array_equal(lars[-1]["conv/kernel"], usual[-1]["conv/kernel"])


def test_the_row_steps_biases_as_the_plain_row_does() -> None:
    rows = load_techniques()
    lars, plain = (
        Technique(name=name, base_batch=256, **rows[name]) for name in ("lars", "nesterov")
    )
    assert isinstance(lars.optimizer, Lars)
    rest = lars.peak_lr(4096) * lars.optimizer.rest_rate
    assert plain.base_lr < rest < plain.peak_lr(4096)


def test_a_zero_norm_means_a_factor_of_one(invariant: Any) -> None:
    zeros = np.zeros_like(WEIGHT)
    config = Lars(weight_decay=0.1)
    (from_zero,) = moves(one(config, zeros, [GRADIENT], [RATE]))
    invariant(NAME, "|w| = 0: the plain step lr g", relative(from_zero, RATE * GRADIENT), 1e-6)
    (no_gradient,) = moves(one(config, WEIGHT, [zeros], [RATE]))
    error = relative(no_gradient, RATE * 0.1 * WEIGHT)
    invariant(NAME, "|g| = 0: the plain step lr decay w", error, 1e-6)


def test_its_factors_are_told() -> None:
    from train.optimizers import trust_ratios

    toy = Toy(Lars(weight_decay=0.1))
    for step in range(3):
        before = toy.weights()
        toy.step(gradients(step), 0.02)
    ratios, kept = trust_ratios(toy.optimizer)
    expected = [
        0.001 * length(before[n]) / (length(gradients(2)[n]) + 0.1 * length(before[n]))
        for n in ADAPTED
    ]
    np.testing.assert_allclose(ratios.numpy(), expected, rtol=1e-5)
    assert not kept.numpy().any()


def test_its_velocity_keeps_the_rates_it_was_made_with() -> None:
    """v = m v + gamma lambda (g + beta w): after a fall of gamma to zero the old steps go on."""
    path = one(Lars(weight_decay=0), WEIGHT, [GRADIENT, GRADIENT], [RATE, 0.0])
    first, second = moves(path)
    assert relative(second, 0.9 * first) < 1e-4
