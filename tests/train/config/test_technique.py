"""Techniques that would train something else than they say are refused, with the cure."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from train.config.optimizer import Adam, Larc, Lars, Muon, NovoGrad, NovoGradTfa, Optimizer, Sgd
from train.config.schedule import Cosine, CropFlip, Grow, Polynomial, Step
from train.config.technique import Technique


def technique(**changes: Any) -> Technique:
    return Technique(**({"name": "t", "base_lr": 0.1, "base_batch": 100} | changes))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("none", 0.1), ("linear", 0.8), ("sqrt", 0.1 * math.sqrt(8)), ("adascale", 0.1)],
)
def test_rules_scale_against_the_base_batch(rule: str, expected: float) -> None:
    found = technique(lr_scaling=rule, optimizer=Sgd()).peak_lr(800)
    assert found == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"normalisation": "ghost_batch_norm"}, "needs ghost_batch, e.g. 128"),
        (
            {"normalisation": "batch_norm", "ghost_batch": 32},
            "ghost_batch 32 has no effect .* batch_norm: say normalisation: ghost_batch_norm",
        ),
        ({"bn_statistics": "reestimated"}, "about normalisation, which is none: choose one"),
        (
            {"initialisation": "whitened"},
            "leaves their lengths to normalisation, which is none: choose one, .*he",
        ),
        (
            {"normalisation": "batch_norm", "bn_momentum_per": "batch"},
            "bn_momentum_per batch is about ghosts, .* batch_norm: say .*ghost_batch_norm",
        ),
        ({"zero_gamma": True}, "zero_gamma .* which is none: choose one, e.g. batch_norm"),
        (
            {"optimizer": NovoGradTfa(), "normalisation": "batch_norm", "zero_gamma": True},
            "novograd_tfa with zero_gamma: .* 32 times too long; use novograd",
        ),
        (
            {"reduction": "adasum", "compression": "fp16"},
            "dot products of whole gradients, which compression fp16 rounds: say .*none",
        ),
        ({"reduction": "adasum", "lr_scaling": "linear"}, "linear would scale twice .*none"),
        ({"reduction": "adasum", "lr_scaling": "adascale"}, "adascale would scale twice .*none"),
        ({"reduction": "adasum", "lr_scaling": "sqrt"}, "sqrt would scale twice .*none"),
        ({"reduction": "adasum", "noise_batch": 8}, "noise_batch enlarges"),
        (
            {"reduction": "adasum", "normalisation": "sync_batch_norm"},
            "sync_batch_norm mixes: use batch_norm",
        ),
        ({"lr_scaling": "adascale", "warmup_epochs": 2}, "needs no warmup_epochs: .* set .*: 0"),
        ({"lr_scaling": "adascale", "noise_batch": 64}, "noise_batch adds to: use one"),
        ({"lr_scaling": "adascale", "regime_adaptation": True}, "all of them: use one of them"),
        (
            {"lr_scaling": "adascale", "normalisation": "sync_batch_norm", "optimizer": Sgd()},
            "sync_batch_norm makes depend on each other: use batch_norm or ghost",
        ),
        ({"lr_scaling": "adascale"}, "a rule for SGD .* found optimizer adam: use sgd"),
        ({"lr_scaling": "adascale", "optimizer": Lars()}, "found optimizer lars: use sgd"),
        (
            {"warmup_epochs": 2},
            "warmup_epochs 2 climb from the base .* say warmup_from: zero, or warmup_epochs: 0",
        ),
        ({"optimizer": Sgd(nesterov=True)}, "optimizer sgd: nesterov .* which is 0: say nesterov"),
        ({"optimizer": Larc(nesterov=True, momentum=0)}, "larc: nesterov .* a momentum such as"),
        ({"optimizer": Muon(momentum=0)}, "optimizer muon: nesterov looks ahead .* which is 0"),
        ({"optimizer": Larc(base="adam", momentum=0.8)}, "have no effect on base adam: leave them"),
        ({"optimizer": Larc(base="adam", nesterov=True)}, "have no effect on base adam: leave"),
        ({"batch_growth": Grow(), "schedule": Cosine()}, "schedule is cosine: say .*constant"),
        (
            {"batch_growth": Grow(), "lr_scaling": "adascale", "optimizer": Sgd()},
            "batch_growth .* say lr_scaling: none",
        ),
        ({"batch_growth": Grow(), "noise_batch": 64}, "to a fixed level: use one of them"),
        ({"batch_growth": Grow(), "regime_adaptation": True}, "as many: use one of them"),
        ({"optimizer": Lars(exclude=("bias", "ga(mma"))}, r"exclude 'ga\(mma' is no regular exp"),
        ({"base_rate": 0.1}, "base_rate"),
        ({"noise_batch": 0}, "greater than or equal to 1"),
        ({"ghost_batch": 1, "normalisation": "ghost_batch_norm"}, "greater than or equal to 2"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        technique(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"normalisation": "ghost_batch_norm", "ghost_batch": 32, "bn_statistics": "reestimated"},
        {"reduction": "adasum", "normalisation": "batch_norm"},
        {"optimizer": NovoGrad(), "precision": "mixed_float16"},
        {"optimizer": NovoGradTfa(), "precision": "mixed_float16"},
        {"lr_scaling": "adascale", "schedule": Cosine(), "optimizer": Sgd(momentum=0.9)},
        {"batch_growth": Grow(), "lr_scaling": "linear"},
        {"regime_adaptation": True, "clip_norm": 1.0, "lr_scaling": "sqrt"},
        {"optimizer": Lars(exclude=())},
        {"warmup_epochs": 2, "warmup_from": "zero"},
        {"warmup_epochs": 2, "lr_scaling": "sqrt"},
        {"optimizer": Sgd(momentum=0.9, nesterov=True)},
        {"optimizer": Muon(momentum=0, nesterov=False, fix_norm=False)},
        {"optimizer": Larc(momentum=0)},
        {"optimizer": Larc(base="adam")},
    ],
)
def test_what_is_not(changes: dict[str, Any]) -> None:
    made = technique(**changes)
    assert Technique.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Step(milestones=(0.5, 0.2)), "must rise, found"),
        (lambda: Step(milestones=(15, 25)), "between 0 and 1, found .* say unit: epochs"),
        (lambda: Grow(milestones=(0.5, 0.5)), "must rise"),
        (lambda: Grow(milestones=(0.5, 1.0)), "less than 1"),
        (lambda: Grow(factor=1), "greater than or equal to 2"),
        (lambda: Polynomial(power=0), "greater than 0"),
        (lambda: CropFlip(crop=-1), "greater than or equal to 0"),
        (lambda: Muon(rest="sgd"), "'adam' or 'lamb'"),
    ],
)
def test_numbers_of_kinds_out_of_range(made: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        made()


def test_growth_begins_with_the_nearest_epoch() -> None:
    assert Grow().epochs(40) == (15, 25, 35)
    assert Grow().epochs(12) == (5, 8, 11)  # 4.5, 7.5 and 10.5: half counts up, all alike


def test_optimizers_are_told_apart_by_name() -> None:
    read = TypeAdapter(Optimizer).validate_python
    assert read({"name": "adam"}) == Adam()
    with pytest.raises(ValidationError, match="momentum"):
        read({"name": "adam", "momentum": 0.9})
