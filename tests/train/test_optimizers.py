"""The optimizers against the formulas of their papers, written down again in plain numpy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from train.technique import Adam, Lamb, Sgd

pytestmark = pytest.mark.tf

RATE = 0.01
SHAPES = {"conv/kernel": (3, 3, 2, 4), "conv/bias": (4,), "bn/gamma": (4,), "dense/kernel": (8, 5)}
EXCLUDED = ("conv/bias", "bn/gamma")


def variables(seed: int = 0) -> list[Any]:
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    return [
        tf.Variable(rng.normal(0, 0.1, shape).astype(np.float32), name=name)
        for name, shape in SHAPES.items()
    ]


def gradients(step: int, scale: float = 1.0) -> list[np.ndarray]:
    """Another direction and length in every step."""
    rng = np.random.default_rng([9, step])
    return [
        (scale * (1 + step) * rng.normal(0.1, 1, shape)).astype(np.float32)
        for shape in SHAPES.values()
    ]


def run(config: Any, steps: int, *, scale: float = 1.0, rates: Any = None) -> list[list[Any]]:
    """Weights before the first and after each step, float64, one list per step."""
    import tensorflow as tf

    from train.optimizers import build_optimizer

    held = variables()
    optimizer = build_optimizer(config, held)
    path = [[v.numpy().astype(np.float64) for v in held]]
    for step in range(steps):
        optimizer.learning_rate.assign(rates[step] if rates else RATE)
        given = [tf.constant(g) for g in gradients(step, scale)]
        optimizer.apply_gradients(zip(given, held, strict=True))
        path.append([v.numpy().astype(np.float64) for v in held])
    return path


def lamb_by_the_paper(
    config: Lamb, steps: int, adapted: tuple[bool, ...], rates: list[float]
) -> list[list[np.ndarray]]:
    """You et al. 2020 (1904.00962v5), Algorithm 2, phi(x) = x, in float64, line by line.

    ``adapted``: per variable; the others get no decay and a ratio of 1, which is Adam with the
    same epsilon outside the root.
    """
    x = [v.numpy().astype(np.float64) for v in variables()]
    m = [np.zeros_like(v) for v in x]
    v = [np.zeros_like(v) for v in x]
    path = [[w.copy() for w in x]]
    for t in range(1, steps + 1):
        for i, g in enumerate(g.astype(np.float64) for g in gradients(t - 1)):
            m[i] = config.beta_1 * m[i] + (1 - config.beta_1) * g
            v[i] = config.beta_2 * v[i] + (1 - config.beta_2) * g**2
            m_hat = m[i] / (1 - config.beta_1**t)
            v_hat = v[i] / (1 - config.beta_2**t)
            update = m_hat / (np.sqrt(v_hat) + config.epsilon)
            ratio = 1.0
            if adapted[i]:
                update = update + config.weight_decay * x[i]
                ratio = np.linalg.norm(x[i]) / np.linalg.norm(update)
            x[i] = x[i] - rates[t - 1] * ratio * update
        path.append([w.copy() for w in x])
    return path


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("exclude", [("bias", "gamma", "beta"), ()])
def test_lamb_is_algorithm_2_of_its_paper(decay: float, exclude: tuple[str, ...]) -> None:
    config = Lamb(weight_decay=decay, exclude=exclude)
    rates = [RATE] * 6 + [3 * RATE] * 6
    adapted = tuple(not (exclude and name in EXCLUDED) for name in SHAPES)
    ours = run(config, 12, rates=rates)
    paper = lamb_by_the_paper(config, 12, adapted, rates)
    for step, (found, expected) in enumerate(zip(ours, paper, strict=True)):
        for name, a, b in zip(SHAPES, found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-7, err_msg=f"{name}, step {step}")


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_lamb_step_is_the_rate_times_the_norm_of_the_weights(scale: float) -> None:
    """At every step and for any length of the gradient; excluded variables do not follow it."""
    path = run(Lamb(weight_decay=0.05), 6, scale=scale)
    for before, after in pairwise(path):
        for name, old, new in zip(SHAPES, before, after, strict=True):
            moved = np.linalg.norm(new - old) / np.linalg.norm(old)
            if name in EXCLUDED:
                assert abs(moved - RATE) > 1e-4 * RATE
            else:
                assert moved == pytest.approx(RATE, rel=2e-4), name


def test_lambs_first_step_without_decay_is_along_the_sign_of_the_gradient() -> None:
    before, after = run(Lamb(), 1)
    for name, old, new, gradient in zip(SHAPES, before, after, gradients(0), strict=True):
        step = old - new
        if name not in EXCLUDED:
            step = step / np.linalg.norm(old) * np.sqrt(old.size)
        np.testing.assert_allclose(step / RATE, np.sign(gradient), atol=1e-3, err_msg=name)


def test_lamb_moves_a_zero_weight_with_a_ratio_of_one() -> None:
    import tensorflow as tf

    from train.optimizers import build_optimizer

    held = [tf.Variable(tf.zeros((4, 4)), name="dense/kernel")]
    optimizer = build_optimizer(Lamb(), held)
    optimizer.learning_rate.assign(RATE)
    optimizer.apply_gradients([(tf.ones((4, 4)), held[0])])
    np.testing.assert_allclose(held[0].numpy(), -RATE, rtol=1e-4)


def test_adam_is_algorithm_1_of_its_paper() -> None:
    """Kingma and Ba 2015 (1412.6980); Keras' epsilon stands where section 2 puts epsilon-hat."""
    config = Adam(beta_1=0.8, beta_2=0.95)
    x = [v.numpy().astype(np.float64) for v in variables()]
    m = [np.zeros_like(v) for v in x]
    v = [np.zeros_like(v) for v in x]
    ours = run(config, 8)
    for t in range(1, 9):
        alpha = RATE * np.sqrt(1 - config.beta_2**t) / (1 - config.beta_1**t)
        for i, g in enumerate(g.astype(np.float64) for g in gradients(t - 1)):
            m[i] = config.beta_1 * m[i] + (1 - config.beta_1) * g
            v[i] = config.beta_2 * v[i] + (1 - config.beta_2) * g**2
            x[i] = x[i] - alpha * m[i] / (np.sqrt(v[i]) + config.epsilon)
            np.testing.assert_allclose(ours[t][i], x[i], rtol=2e-5, atol=2e-7)


# --- the rate inside the velocity, through the real step


def constant_gradient(config: Sgd, rates: list[float], *, corrected: bool = True) -> float:
    """The only weight after these steps from 0 with a gradient of 1, through TrainStep."""
    import tensorflow as tf

    from train.layers import StepSeed
    from train.optimizers import build_optimizer
    from train.step import TrainStep

    class Constant(TrainStep):
        def _mean_over_ranks(self, given: list[Any]) -> tuple[list[Any], Any]:
            return [tf.ones_like(g) for g in given], tf.constant(0.0, tf.float64)

    inputs = tf.keras.Input((1,), dtype="uint8")
    scaled = tf.keras.layers.Rescaling(1.0)(inputs)
    logits = tf.keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros")(scaled)
    model = tf.keras.Model(inputs, logits)
    optimizer = build_optimizer(config, model.trainable_variables)
    step = Constant(model, optimizer, config, StepSeed(1), size=1)
    if not corrected:
        step._velocities = []
    images, labels = np.ones((2, 1), np.uint8), np.array([0, 1])
    for number, rate in enumerate(rates):
        step(images, labels, rate, number)
    weights = model.trainable_variables[0].numpy().reshape(-1)
    assert weights[0] == weights[1]
    return float(weights[0])


def goyal(rates: list[float], momentum: float, *, nesterov: bool = False) -> float:
    """u = m u + g; w = w - lr u (Goyal et al. 2017, 1706.02677, equations 9 and 10): the rate is
    outside, so that a change of it needs no correction."""
    w = u = 0.0
    for rate in rates:
        u = momentum * u + 1.0
        w -= rate * (momentum * u + 1.0 if nesterov else u)
    return w


RISING = [0.1] * 50 + [1.0] * 10


def test_momentum_follows_a_change_of_the_rate() -> None:
    found = constant_gradient(Sgd(momentum=0.9), RISING)
    assert found == pytest.approx(-140.744, abs=2e-3)
    assert found == pytest.approx(goyal(RISING, 0.9), rel=1e-5)


def test_without_the_correction_it_would_not() -> None:
    found = constant_gradient(Sgd(momentum=0.9), RISING, corrected=False)
    assert found == pytest.approx(-88.259, abs=2e-3)


@pytest.mark.parametrize("nesterov", [False, True])
def test_a_rate_that_changes_in_every_step(nesterov: bool) -> None:
    rates = [0.01 * (step + 1) for step in range(20)] + [0.2 * 0.7**step for step in range(20)]
    found = constant_gradient(Sgd(momentum=0.9, nesterov=nesterov), rates)
    assert found == pytest.approx(goyal(rates, 0.9, nesterov=nesterov), rel=1e-5)


def test_linear_rule_k_small_steps_are_one_of_k_times_the_rate() -> None:
    """T1: exact where the gradient is constant and there is no momentum."""
    many = constant_gradient(Sgd(), [0.05] * 8)
    assert many == pytest.approx(constant_gradient(Sgd(), [8 * 0.05]), rel=1e-6)
    assert many == pytest.approx(-0.4, rel=1e-6)
