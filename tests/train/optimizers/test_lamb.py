"""LAMB: Algorithm 2 of You et al. 2020 (1904.00962), by tensorflow-addons."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.train.optimizers.toy import (
    ADAPTED,
    RATES,
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
from tests.train.references.moment_rules import lamb
from train.config.optimizer import Lamb

pytestmark = pytest.mark.tf

NAME, RATE = "T8 LAMB", 0.01


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_step_is_the_rate_times_the_norm_of_the_weights(scale: float, invariant: Any) -> None:
    """At every step and for any length of the gradient; excluded variables do not follow it."""
    path = run(Lamb(weight_decay=0.05), [RATE] * 6, scale)
    for before, after in pairwise(path):
        for name in SHAPES:
            moved = length(after[name] - before[name]) / length(before[name])
            if name in ADAPTED:
                error = moved / RATE - 1
                invariant(NAME, "|dw| = lr |w| at every step, any scale of g", error, 2e-4)
            else:
                assert abs(moved - RATE) > 1e-4 * RATE


def test_its_first_step_without_decay_is_along_the_sign_of_the_gradient(invariant: Any) -> None:
    before, after = run(Lamb(), [RATE], 100.0)  # far above epsilon
    for name in SHAPES:
        step = before[name] - after[name]
        size = length(before[name]) / np.sqrt(step.size) if name in ADAPTED else 1.0
        error = float(np.abs(step / (RATE * size) - np.sign(gradients(0)[name])).max())
        invariant(NAME, "step 1, decay 0: parallel to sign(g)", error, 1e-4)


def test_excluded_variables_take_adams_steps(invariant: Any) -> None:
    """Kingma and Ba's Algorithm 1 as printed, without decay, though the config has one."""
    path = run(Lamb(weight_decay=0.3), RATES)
    for name in set(SHAPES) - set(ADAPTED):
        given = [gradients(step)[name].astype(np.float64) for step in range(len(RATES))]
        first = path[0][name]
        adam = lamb(first, given, RATES, b1=0.9, b2=0.999, eps=1e-6, adapted=False)
        pairs = list(zip(path, adam, strict=True))[1:]
        error = max(relative(found[name] - first, paper - first) for found, paper in pairs)
        invariant(NAME, "excluded variables take Adam's steps", error, 2e-5)


def test_it_moves_a_zero_weight_with_a_ratio_of_one(invariant: Any) -> None:
    (step,) = moves(one(Lamb(), np.zeros((4, 4)), [np.ones((4, 4))], [RATE]))
    invariant(NAME, "|w| = 0: ratio 1", relative(step, RATE * np.ones((4, 4))), 1e-4)


@pytest.mark.parametrize("exclude", [("bias", "gamma", "beta"), ()])
def test_telling_its_ratios_changes_no_bit_of_tensorflow_addons(
    exclude: tuple[str, ...], invariant: Any
) -> None:
    import tensorflow as tf
    from tensorflow_addons.optimizers import LAMB

    from train.optimizers import optimizer_variables

    patterns = list(exclude) or ["matches nothing"]
    ours, theirs = (Toy(Lamb(weight_decay=0.1, exclude=exclude)) for _ in range(2))
    theirs.optimizer = LAMB(
        0.0, weight_decay=0.1, exclude_from_weight_decay=patterns,
        exclude_from_layer_adaptation=patterns,
    )  # fmt: skip

    def steps(toy: Toy) -> Any:
        @tf.function
        def step(given: list[Any], rate: Any) -> None:
            toy.optimizer.learning_rate.assign(rate)
            toy.optimizer.apply_gradients(zip(given, toy.variables, strict=True))

        return step

    run_ours, run_theirs = steps(ours), steps(theirs)
    for number, rate in enumerate(RATES):
        given = [tf.constant(g) for g in gradients(number).values()]
        run_ours(given, tf.constant(rate))
        run_theirs(given, tf.constant(rate))
    pairs = [*zip(ours.variables, theirs.variables, strict=True)]
    pairs += zip(optimizer_variables(ours.optimizer), theirs.optimizer.variables(), strict=True)
    differ = sum(not np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)
    invariant(NAME, "weights and slots that differ from tensorflow-addons'", differ, 0)


def test_its_ratios_are_told(invariant: Any) -> None:
    from train.optimizers import trust_ratios

    toy = Toy(Lamb(weight_decay=0.1))
    for step in range(6):
        toy.step(gradients(step), RATE)
    ratios, kept = (v.numpy() for v in trust_ratios(toy.optimizer))
    for place, name in enumerate(ADAPTED):
        expected: list[float] = []
        given = [gradients(step)[name].astype(np.float64) for step in range(6)]
        lamb(
            first_weights()[name].astype(np.float64), given, [RATE] * 6, b1=0.9, b2=0.999,
            eps=1e-6, decay=0.1, ratios=expected,
        )  # fmt: skip
        error = ratios[place] / expected[-1] - 1
        invariant(NAME, "recorded ratio |w| / |update|", error, 2e-5)
    assert not kept.any()
