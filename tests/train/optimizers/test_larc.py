"""LARC: apex's wrapper, which bounds or scales the rate of each variable."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jobs.config.techniques import load_techniques
from tests.train.optimizers.toy import (
    ADAPTED,
    Toy,
    Weights,
    first_weights,
    gradients,
    length,
    moves,
    one,
    relative,
    run,
)
from tests.train.references.momentum_rules import larc_sgd
from train.config.optimizer import Adam, Larc, Sgd
from train.config.technique import Technique

pytestmark = pytest.mark.tf

NAME = "T7 LARC"
WEIGHT = first_weights()["conv/kernel"]
GRADIENT = gradients(0)["conv/kernel"]
LOCAL = 0.02 * length(WEIGHT) / length(GRADIENT)  # lam of the default trust, without decay
RATES = [0.01] * 8 + [0.03] * 8


def furthest(one_path: list[Weights], other: list[Weights]) -> float:
    pairs = zip(one_path, other, strict=True)
    return max(float(np.abs(a[name] - b[name]).max()) for a, b in pairs for name in a)


@pytest.mark.parametrize("nesterov", [False, True])
def test_where_its_bound_is_above_the_rate_it_is_sgd(nesterov: bool, invariant: Any) -> None:
    larc = run(Larc(trust=1e6, weight_decay=0.1, nesterov=nesterov), RATES)
    sgd = run(Sgd(momentum=0.9, weight_decay=0.1, nesterov=nesterov), RATES)
    error = furthest(larc, sgd)
    invariant(NAME, "lam >= lr: the base optimizer with L2, bit for bit", error, 0)


def test_where_its_bound_is_above_the_rate_it_is_adam(invariant: Any) -> None:
    larc, adam = (
        run(config, RATES) for config in (Larc(trust=1e6, weight_decay=0, base="adam"), Adam())
    )
    error = furthest(larc, adam)
    invariant(NAME, "lam >= lr: the base optimizer with L2, bit for bit", error, 0)


@pytest.mark.parametrize("times", [2.0, 30.0, 1000.0])
def test_where_it_binds_the_first_step_is_trust_times_the_norm(
    times: float, invariant: Any
) -> None:
    (step,) = moves(one(Larc(weight_decay=0), WEIGHT, [GRADIENT], [times * LOCAL]))
    error = length(step) / (0.02 * length(WEIGHT)) - 1
    invariant(NAME, "lam < lr, decay 0: first step trust |w|, whatever lr", error, 1e-5)


def test_it_is_continuous_where_the_bound_begins_to_bind(invariant: Any) -> None:
    below, at, above = (
        moves(one(Larc(weight_decay=0), WEIGHT, [GRADIENT], [LOCAL * (1 + shift)]))[0]
        for shift in (-1e-4, 0, 1e-4)
    )
    invariant(NAME, "continuous at lam = lr (+- 1e-4)", relative(below, at), 1.1e-4)
    invariant(NAME, "continuous at lam = lr (+- 1e-4)", relative(above, at), 1.1e-4)


def test_the_row_is_apexs_for_every_variable(invariant: Any) -> None:
    """Biases and normalisation as they start in a network, under a rate that climbs to 3.125."""
    start = first_weights() | {
        "conv/bias": np.zeros(4, np.float32),
        "bn/gamma": np.ones(4, np.float32),
        "bn/beta": np.zeros(4, np.float32),
    }
    row = load_techniques()["larc"]
    config = Technique(name="larc", base_batch=256, **row).optimizer
    assert config == Larc(exclude=())
    rates = [3.125 * (step + 1) / 12 for step in range(12)]
    toy = Toy(config, start)
    for step, rate in enumerate(rates):
        toy.step(gradients(step, 0.01), rate)
    found, worst = toy.weights(), 0.0
    for name, first in start.items():
        given = [gradients(step, 0.01)[name].astype(np.float64) for step in range(12)]
        numbers = {"trust": 0.02, "eps": 1e-8, "decay": 5e-4, "clip": True, "momentum": 0.9}
        *_, last = larc_sgd(first.astype(np.float64), given, rates, **numbers)
        worst = max(worst, relative(found[name] - first, last - first))
    invariant(NAME, "the row: apex's rule for biases, gamma and beta, too", worst, 2e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_starts_at_zero_is_thrown_once_and_then_moves_by_trust(momentum: float) -> None:
    """The first step is the plain one, at whatever rate; from then on trust |w| binds."""
    config = Larc(momentum=momentum, weight_decay=0, exclude=())
    path = one(config, np.zeros(4), [np.ones(4)] + [-np.ones(4)] * 5, [0.25] * 6, "bn/beta")
    first, *later = moves(path)
    np.testing.assert_allclose(first, 0.25 * np.ones(4), rtol=1e-6)
    if momentum:  # the throw goes on as velocity, against five gradients of the same length
        assert (path[6] / path[1] > 4).all()
    else:
        lengths = [length(step) / length(w) for step, w in zip(later, path[1:], strict=False)]
        np.testing.assert_allclose(lengths, 0.02, rtol=1e-5)


def test_without_clip_it_multiplies_the_rate() -> None:
    (step,) = moves(one(Larc(clip=False, weight_decay=0), WEIGHT, [GRADIENT], [3.0]))
    assert relative(step, 3.0 * LOCAL * GRADIENT) < 1e-5


def test_the_base_has_no_decay_of_its_own(invariant: Any) -> None:
    """Counted once: with a gradient of zero norm not at all, as in apex."""
    for base in ("sgd", "adam"):
        toy = Toy(Larc(weight_decay=0.1, base=base))
        assert toy.optimizer.weight_decay is None
    gradient, decay = GRADIENT.astype(np.float64), 0.1
    (step,) = moves(one(Larc(weight_decay=decay, trust=1e6), WEIGHT, [gradient], [0.5]))
    error = relative(step, 0.5 * (gradient + decay * WEIGHT))
    invariant(NAME, "decay is counted once: the base's own is off", error, 1e-6)
    (still,) = moves(one(Larc(weight_decay=decay), WEIGHT, [0 * gradient], [0.5]))
    assert not still.any()


def test_momentum_follows_the_rate_only_where_the_base_is_sgd() -> None:
    from train.optimizers import velocities

    sgd, adam = Larc(), Larc(base="adam")
    assert len(velocities(Toy(sgd).optimizer, sgd)) == len(first_weights())
    assert velocities(Toy(adam).optimizer, adam) == []


def test_it_tells_its_factors_and_where_it_kept_the_rate() -> None:
    from train.optimizers import trust_ratios

    toy = Toy(Larc(weight_decay=0))
    given = gradients(0)
    given["dense/kernel"] = given["dense/kernel"] * np.float32(1e-3)  # lam is far above lr
    start = toy.weights()
    toy.step(given, 0.01)
    ratios, kept = (v.numpy() for v in trust_ratios(toy.optimizer))
    name = ADAPTED[0]
    local = 0.02 * length(start[name]) / length(given[name])
    np.testing.assert_allclose(ratios, [local / 0.01, 1.0], rtol=1e-5)
    assert local < 0.01 and kept.tolist() == [0.0, 1.0]


def test_a_variable_without_a_gradient_counts_as_not_clipped() -> None:
    from train.optimizers import trust_ratios

    toy = Toy(Larc())
    toy.step({name: 0 * g for name, g in gradients(0).items()}, 0.01)
    ratios, kept = (v.numpy() for v in trust_ratios(toy.optimizer))
    assert ratios.tolist() == [1.0, 1.0] and kept.tolist() == [0.0, 0.0]
