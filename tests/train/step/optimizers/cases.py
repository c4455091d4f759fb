"""Every kind of optimizer with numbers that show, and the published rule it has to follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.train.references.moment_rules import adam, lamb, novograd
from tests.train.references.momentum_rules import larc_sgd, lars, sgd
from tests.train.references.muon_rule import muon
from tests.train.step.optimizers.toy import ADAPTED
from train.config.optimizer import (
    Adam,
    AdamW,
    AnyOptimizer,
    Lamb,
    Larc,
    Lars,
    Muon,
    NovoGrad,
    NovoGradTfa,
    Sgd,
)

Rule = Callable[..., list[np.ndarray]]


def everywhere(rule: Rule, **numbers: Any) -> Callable[[str], Rule]:
    """The same rule for all variables; biases and normalisation are not adapted."""
    return lambda name: partial(rule, adapted=name in ADAPTED, **numbers)


def never_excluding(rule: Rule, **numbers: Any) -> Callable[[str], Rule]:
    return lambda _: partial(rule, **numbers)


def slowed(rule: Rule, times: float) -> Rule:
    return lambda w, given, rates: rule(w, given, [times * rate for rate in rates])


def muon_and(rest: Callable[[str], Rule], *, dense: bool, **numbers: Any) -> Callable[[str], Rule]:
    """Muon for kernels, of which no dense one is rescaled; the rest has a tenth of the rate."""

    def choose(name: str) -> Rule:
        if name == "conv/kernel":
            return partial(muon, **numbers)
        if dense and name == "dense/kernel":
            return partial(muon, **numbers | {"fix_norm": False})
        return slowed(rest(name), 0.1)

    return choose


LARC = {"trust": 0.02, "eps": 1e-8, "decay": 0.01}
MUON = {"momentum": 0.6, "nesterov": True, "steps": 5, "fix_norm": True}
# technique, config, its rule for each variable
CASES: dict[str, tuple[str, AnyOptimizer, Callable[[str], Rule]]] = {
    "sgd": ("T0 SGD", Sgd(), everywhere(sgd)),
    "momentum": ("T0 SGD", Sgd(momentum=0.9), everywhere(sgd, momentum=0.9)),
    "nesterov_l2": (
        "T0 SGD",
        Sgd(momentum=0.9, nesterov=True, weight_decay=0.1),
        everywhere(sgd, momentum=0.9, nesterov=True, decay=0.1),
    ),
    "adam": ("T0 Adam", Adam(beta_1=0.8, beta_2=0.95), everywhere(adam, b1=0.8, b2=0.95, eps=1e-7)),
    "adamw": (
        "T0 AdamW",
        AdamW(weight_decay=0.2),
        everywhere(adam, b1=0.9, b2=0.999, eps=1e-7, decoupled=0.2),
    ),
    "lamb": ("T8 LAMB", Lamb(), everywhere(lamb, b1=0.9, b2=0.999, eps=1e-6)),
    "lamb_decay": (
        "T8 LAMB",
        Lamb(weight_decay=0.1),
        everywhere(lamb, b1=0.9, b2=0.999, eps=1e-6, decay=0.1),
    ),
    "lamb_all": (
        "T8 LAMB",
        Lamb(weight_decay=0.1, exclude=()),
        never_excluding(lamb, b1=0.9, b2=0.999, eps=1e-6, decay=0.1),
    ),
    "novograd": (
        "T9 NovoGrad",
        NovoGrad(weight_decay=0.1),
        everywhere(novograd, b1=0.95, b2=0.98, eps=1e-8, decay=0.1),
    ),
    "novograd_averaging": (
        "T9 NovoGrad",
        NovoGrad(weight_decay=0.1, averaging=True),
        everywhere(novograd, b1=0.95, b2=0.98, eps=1e-8, decay=0.1, averaging=True),
    ),
    "novograd_tfa": (
        "T9 NovoGrad",
        NovoGradTfa(weight_decay=0.1),
        never_excluding(novograd, b1=0.9, b2=0.999, eps=1e-7, decay=0.1),
    ),
    "lars": (
        "T6 LARS",
        Lars(eta=0.2, weight_decay=0.1),
        everywhere(lars, momentum=0.9, eta=0.2, decay=0.1),
    ),
    "lars_rest": (
        "T6 LARS",
        Lars(eta=0.2, weight_decay=0.1, rest_rate=0.01),
        lambda name: slowed(
            partial(lars, momentum=0.9, eta=0.2, decay=0.1, adapted=name in ADAPTED),
            1 if name in ADAPTED else 0.01,
        ),
    ),
    "larc": (
        "T7 LARC",
        Larc(weight_decay=0.01),
        everywhere(larc_sgd, momentum=0.9, **LARC),
    ),
    "larc_nesterov": (
        "T7 LARC",
        Larc(weight_decay=0.01, nesterov=True, trust=0.2),
        everywhere(larc_sgd, momentum=0.9, nesterov=True, **LARC | {"trust": 0.2}),
    ),
    "larc_apex": (
        "T7 LARC",
        Larc(weight_decay=0.01, exclude=()),
        never_excluding(larc_sgd, momentum=0.9, **LARC),
    ),
    "muon": (
        "S5 Muon",
        Muon(),
        muon_and(never_excluding(lamb, b1=0.9, b2=0.99, eps=1e-6, adapted=False), dense=False,
                 **MUON),
    ),
    "muon_lamb": (
        "S5 Muon",
        Muon(rest="lamb", fix_norm=False, nesterov=False),
        muon_and(everywhere(lamb, b1=0.9, b2=0.99, eps=1e-6), dense=False,
                 **MUON | {"fix_norm": False, "nesterov": False}),
    ),
    "muon_dense": (
        "S5 Muon",
        Muon(dense=True, newton_schulz_steps=3),
        muon_and(never_excluding(lamb, b1=0.9, b2=0.99, eps=1e-6, adapted=False), dense=True,
                 **MUON | {"steps": 3}),
    ),
}  # fmt: skip
