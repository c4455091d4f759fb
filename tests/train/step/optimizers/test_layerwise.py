"""LARS, LARC and LAMB beyond their rules, which test_optimizers proves: the rows of
techniques.yaml, norms of zero, and the ratios that are recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobs.config.techniques import load_techniques
from tests.train.references.moment_rules import lamb
from tests.train.step.optimizers.toy import (
    ADAPTED,
    Toy,
    first_weights,
    gradients,
    length,
    moves,
    one,
    relative,
)
from train.config.optimizer import NOT_ADAPTED, AdamW, Lamb, Larc, Lars
from train.config.technique import Technique

pytestmark = pytest.mark.tf

WEIGHT = first_weights()["conv/kernel"]
GRADIENT = gradients(0)["conv/kernel"]


def test_larss_row_steps_biases_as_the_plain_row_does_and_larcs_as_all_others() -> None:
    rows = load_techniques()
    lars, plain = (
        Technique(name=name, base_batch=256, **rows[name]) for name in ("lars", "nesterov")
    )
    rest = lars.peak_lr(4096) * lars.optimizer.rest_rate
    assert plain.base_lr < rest < plain.peak_lr(4096)
    larc = Technique(name="larc", base_batch=256, **rows["larc"]).optimizer
    assert larc == Larc(exclude=(), weight_decay=5e-4), "as apex: biases and normalisation, too"


def test_a_zero_norm_means_a_factor_of_one(invariant: Any) -> None:
    zeros = np.zeros_like(WEIGHT)
    for name, config, decay in (
        ("T6 LARS", Lars(weight_decay=0.1), 0.1),
        ("T7 LARC", Larc(weight_decay=0.1), 0.0),  # which does not decay then
    ):
        (step,) = moves(one(config, zeros, [GRADIENT], [2.0]))
        invariant(name, "|w| = 0: the plain step lr g", relative(step, 2.0 * GRADIENT), 1e-6)
        (step,) = moves(one(config, WEIGHT, [zeros], [2.0]))
        off = length(step - 2.0 * decay * WEIGHT)
        invariant(name, "|g| = 0: the plain step lr decay w", off, 1e-6)


def test_the_factors_are_recorded_and_where_larc_kept_the_rate() -> None:
    from train.step.optimizers.layerwise import trust_log

    given = gradients(0)
    given["dense/kernel"] = given["dense/kernel"] * np.float32(1e-3)  # lam is far above lr
    norms = [(length(first_weights()[n]), length(given[n])) for n in ADAPTED]
    for config, expected, kept in (
        (Lars(weight_decay=0.1), [0.001 * w / (g + 0.1 * w) for w, g in norms], [0, 0]),
        (Larc(weight_decay=0), [0.02 * norms[0][0] / norms[0][1] / 0.01, 1.0], [0, 1]),
    ):
        toy = Toy(config)
        toy.step(given, 0.01)
        found = trust_log(toy.optimizer)
        np.testing.assert_allclose(found.factors[0], expected, rtol=1e-5)
        assert found.factors[1].numpy().tolist() == kept
    toy.step({name: 0 * gradient for name, gradient in given.items()}, 0.01)
    assert found.factors[1].numpy().tolist() == [0, 0], "no gradient is not kept"


@pytest.mark.parametrize("exclude", [("bias", "gamma", "beta"), ()])
def test_recording_changes_no_bit_of_tensorflow_addons(
    exclude: tuple[str, ...], invariant: Any
) -> None:
    import tensorflow as tf
    from tensorflow_addons.optimizers import LAMB

    from train.step.optimizers.layerwise import trust_log

    patterns = list(exclude) or ["matches nothing"]
    ours, theirs = (Toy(Lamb(weight_decay=0.1, exclude=exclude)) for _ in range(2))
    theirs.optimizer = LAMB(
        0.0, weight_decay=0.1, exclude_from_weight_decay=patterns,
        exclude_from_layer_adaptation=patterns,
    )  # fmt: skip

    def steps(toy: Toy) -> Any:
        @tf.function
        def step(given: list[Any]) -> None:
            toy.optimizer.learning_rate.assign(0.01)
            toy.optimizer.apply_gradients(zip(given, toy.variables, strict=True))

        return step

    run_ours, run_theirs = steps(ours), steps(theirs)
    for number in range(6):
        given = [tf.constant(g) for g in gradients(number).values()]
        run_ours(given)
        run_theirs(given)
    pairs = [*zip(ours.variables, theirs.variables, strict=True)]
    pairs += zip(ours.optimizer.variables(), theirs.optimizer.variables(), strict=True)
    differ = sum(not np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)
    invariant("T8 LAMB", "weights and slots that differ from tensorflow-addons'", differ, 0)
    expected: list[float] = []
    kernels = [gradients(step)["conv/kernel"].astype(np.float64) for step in range(6)]
    numbers = {"b1": 0.9, "b2": 0.999, "eps": 1e-6, "decay": 0.1, "ratios": expected}
    lamb(WEIGHT.astype(np.float64), kernels, [0.01] * 6, **numbers)
    error = trust_log(ours.optimizer).factors.numpy()[0, 0] / expected[-1] - 1
    invariant("T8 LAMB", "recorded ratio |w| / |update|", error, 2e-5)


NAMES = ("gamma_correction/kernel", "debiased/kernel", "conv/bias", "bn/gamma", "bn/beta")


@pytest.mark.parametrize("config", [AdamW(weight_decay=0.5), Lamb(weight_decay=0.5)])
@pytest.mark.parametrize("named", [(), ("gamma_correction",)])
def test_the_usual_patterns_do_not_look_at_the_names_of_layers(config: Any, named: Any) -> None:
    """A researcher's, in which a sweep's own patterns look."""
    config = config.model_copy(update={"exclude": NOT_ADAPTED + named})
    toy = Toy(config, dict.fromkeys(NAMES, np.ones((2, 2))))
    toy.step(dict.fromkeys(NAMES, np.zeros((2, 2), np.float32)), 0.1)
    moved = [name for name, w in toy.weights().items() if (w != 1).any()]
    assert moved == [name for name in NAMES[:2] if name.split("/")[0] not in named]
