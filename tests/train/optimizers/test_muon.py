"""Muon's steps of convolutions and dense layers, and who takes the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.train.optimizers.toy import (
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
from train.config.optimizer import Muon

pytestmark = pytest.mark.tf

NAME, RATE = "S5 Muon", 0.1
WEIGHT = first_weights()["conv/kernel"]
GRADIENT = gradients(0)["conv/kernel"]


def test_before_the_step_a_convolution_has_the_norm_of_its_channels(invariant: Any) -> None:
    """Seen alone with a rate of zero, when nothing is left but the rescaling."""
    name = "conv/kernel"
    shape = SHAPES[name]
    weight = np.random.default_rng(3).normal(0, 2, shape)
    path = one(Muon(dense=True), weight, [np.ones(shape)], [0.0], name)
    error = length(path[1]) / np.sqrt(shape[-1]) - 1
    invariant(NAME, "|w| = sqrt(c_out) before the step", error, 1e-6)
    assert relative(path[1] / length(path[1]), weight / length(weight)) < 1e-6
    kept = one(Muon(dense=True, fix_norm=False), weight, [np.ones(shape)], [0.0], name)
    assert np.array_equal(kept[0], kept[1])


def test_no_dense_kernel_is_rescaled() -> None:
    """Nothing behind it takes its length away."""
    name = "dense/kernel"
    weight = np.random.default_rng(3).normal(0, 2, SHAPES[name])
    path = one(Muon(dense=True), weight, [np.ones(SHAPES[name])], [0.0], name)
    assert np.array_equal(path[0], path[1])


def test_every_channel_takes_a_step_of_about_the_rate(invariant: Any) -> None:
    """[out, all in of one] has orthogonal rows: the update of a kernel with 4 channels, 18 inputs
    each, has singular values near 1, so its norm is near sqrt(4)."""
    (step,) = moves(one(Muon(fix_norm=False), WEIGHT, [GRADIENT], [RATE]))
    rows = np.moveaxis(step, -1, 0).reshape(4, -1) / RATE
    values = np.linalg.svd(rows, compute_uv=False)
    error = float(np.abs(values - 0.95).max())
    invariant(NAME, "singular values of a convolution's step in [0.65, 1.25]", error, 0.30)


@pytest.mark.parametrize("scale", [1e-4, 1e4])
@pytest.mark.parametrize("nesterov", [False, True])
def test_steps_do_not_see_the_gradients_scale(scale: float, nesterov: bool, invariant: Any) -> None:
    given = [gradients(step)["conv/kernel"] for step in range(10)]
    config = Muon(nesterov=nesterov)
    plain = one(config, WEIGHT, given, [RATE] * 10)
    scaled = one(config, WEIGHT, [scale * g for g in given], [RATE] * 10)
    error = relative(scaled[-1] - WEIGHT, plain[-1] - WEIGHT)
    invariant(NAME, "10 steps with g, 1e-4 g and 1e4 g", error, 1e-4)


def test_dense_kernels_are_orthogonalised_only_when_asked() -> None:
    for dense in (False, True):
        toy = Toy(Muon(dense=dense, fix_norm=False))
        before = toy.weights()["dense/kernel"]
        toy.step(gradients(0), RATE)
        values = np.linalg.svd(before - toy.weights()["dense/kernel"], compute_uv=False) / RATE
        assert (values.min() > 0.5) == dense


def test_what_is_left_has_a_rate_of_its_own(invariant: Any) -> None:
    """First steps: Adam moves each number by its rate, LAMB a matrix by its rate times |w|."""
    before, after = run(Muon(rest_rate=0.3), [RATE], 100.0)  # far above epsilon
    for name in set(SHAPES) - {"conv/kernel"}:
        error = float(np.abs(np.abs(after[name] - before[name]) / (0.3 * RATE) - 1).max())
        invariant(NAME, "rest by Adam: first step rest_rate lr in each number", error, 2e-5)
    before, after = run(Muon(rest_rate=0.3, rest="lamb"), [RATE], 100.0)
    moved = length(after["dense/kernel"] - before["dense/kernel"])
    error = moved / (0.3 * RATE * length(before["dense/kernel"])) - 1
    invariant(NAME, "rest by LAMB: a matrix moves by rest_rate lr |w|", error, 1e-5)
    bias = np.abs(after["conv/bias"] - before["conv/bias"]) / (0.3 * RATE)
    assert np.abs(bias - 1).max() < 2e-5


def test_equal_gradients_give_equal_bits() -> None:
    """What ranks rely on: nothing is drawn, nothing depends on what ran before."""
    first, second = (run(Muon(dense=True), [RATE] * 5) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert all(np.array_equal(a[name], b[name]) for name in SHAPES)
