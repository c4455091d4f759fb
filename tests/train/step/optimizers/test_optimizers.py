"""Every optimizer: against its paper in plain numpy, and as the train step needs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from tests import builders
from tests.train.step.optimizers.cases import CASES
from tests.train.step.optimizers.toy import (
    ADAPTED,
    RATES,
    SHAPES,
    Toy,
    first_weights,
    gradients,
    run,
)
from train.config.optimizer import AnyOptimizer, Lars, Muon, Sgd
from train.errors import ConfigError

pytestmark = pytest.mark.tf

ROOT = Path(__file__).resolve().parents[4]
EACH = pytest.mark.parametrize("case", CASES)


def test_every_kind_is_among_the_cases() -> None:
    assert {type(config) for _, config, _ in CASES.values()} == set(get_args(AnyOptimizer))


@EACH
def test_thirty_steps_are_those_of_the_paper(case: str, invariant: Any) -> None:
    """Of every variable, with a rate that rises and falls; relative to how far the weights went."""
    technique, config, rule_for = CASES[case]
    ours = run(config, RATES)
    worst = 0.0
    for name, first in first_weights().items():
        given = [gradients(step)[name].astype(np.float64) for step in range(len(RATES))]
        paper = rule_for(name)(first.astype(np.float64), given, RATES)
        travelled = max(np.abs(w - paper[0]).max() for w in paper)
        for found, expected in zip(ours, paper, strict=True):
            worst = max(worst, float(np.abs(found[name] - expected).max() / travelled))
    invariant(technique, "30 steps as its source in numpy, relative to the way gone", worst, 2e-5)


@EACH
@pytest.mark.parametrize("zero", ["weights", "gradients", "both"])
def test_zero_norms_divide_nothing(case: str, zero: str) -> None:
    toy = Toy(CASES[case][1])
    none = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    if zero != "gradients":
        for variable in toy.variables:
            variable.assign(none[variable.name.split(":")[0]])
    start = toy.weights()
    for step in range(3):
        toy.step(gradients(step) if zero == "weights" else none, 0.01)
    for name, weight in toy.weights().items():
        assert np.isfinite(weight).all(), name
        if zero == "weights":
            assert np.abs(weight - start[name]).min() > 0, f"{name} never left zero"
        if zero == "both":
            assert not weight.any(), name


@EACH
def test_a_rate_of_zero_moves_nothing(case: str) -> None:
    """As in the first step of a warm-up from zero; fix_norm alone rescales its kernels."""
    config = CASES[case][1]
    toy = Toy(config)
    before = toy.weights()
    toy.step(gradients(0), 0.0)
    for name, weight in toy.weights().items():
        if not (isinstance(config, Muon) and config.fix_norm and name in ADAPTED):
            assert np.array_equal(weight, before[name]), name
        assert np.isfinite(weight).all()


@pytest.mark.parametrize("config", [Lars(exclude=("bias", "batchnorm")), Sgd(exclude=("biases",))])
def test_a_pattern_that_is_in_no_name_is_refused_with_names_that_are(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"in no variable's name.* names are .*kernel"):
        Toy(config)
    Toy(Sgd(exclude=("bias:0$", "kernel")))  # a regular expression
    Toy(Lars(), {"dense/kernel": np.ones((2, 2))})  # the usual ones may be idle


def test_the_patterns_exclude_biases_and_normalisation_of_the_networks_and_no_kernel() -> None:
    from train.config.optimizer import NOT_ADAPTED
    from train.models.layers import StepSeed
    from train.models.networks import build_model
    from train.step.optimizers.layerwise import excluded

    technique = builders.row(normalisation="batch_norm")
    for model in ("cnn", "resnet_mini", "resnet50"):
        of = builders.config(dataset="cifar10", model=model, technique=technique)
        variables = build_model(of, (32, 32, 3), 10, StepSeed(1)).trainable_variables
        for variable in variables:
            assert excluded(variable, NOT_ADAPTED) == (len(variable.shape) == 1), variable.name


def test_under_tf_distribute_all_replicas_take_the_same_steps() -> None:
    """Two mirrored devices with half the gradient each: every kind as on one device."""
    program = ROOT / "tests/train/programs/mirrored_optimizers.py"
    done = subprocess.run(
        [sys.executable, program], capture_output=True, text=True, check=False, cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == {*CASES, "own network"}
    assert {name: error for name, error in found.items() if error > 1e-6} == {}
