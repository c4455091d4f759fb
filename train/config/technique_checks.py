"""Techniques that would train something other than they say; see :mod:`train.config.checks`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # which imports this module
    from train.config.technique import Technique

Rows = tuple[tuple[Callable[..., Any], str], ...]

TECHNIQUE: Rows = (
    (lambda t: t.normalisation == "ghost_batch_norm" and t.ghost_batch is None,
     "normalisation ghost_batch_norm needs ghost_batch, e.g. 128"),
    (lambda t: t.normalisation != "ghost_batch_norm" and those(
        ghost_batch=t.ghost_batch, bn_momentum_per=t.bn_momentum_per != "ghost"),
     "{x} has no effect with normalisation {t.normalisation}: say normalisation: "
     "ghost_batch_norm, or leave it out"),
    (lambda t: t.normalisation == "none" and those(
        bn_statistics=t.bn_statistics != "moving", zero_gamma=t.zero_gamma,
        initialisation=t.initialisation == "whitened"),
     "{x} as given needs normalisation, which is none: choose one, e.g. batch_norm, or leave it "
     "out"),
    (lambda t: t.reduction == "adasum" and those(
        compression=t.compression != "none", lr_scaling=t.lr_scaling != "none",
        noise_batch=t.noise_batch, normalisation=t.normalisation == "sync_batch_norm"),
     "reduction adasum adds up what the gradients of ranks do not have in common (Maleki et al. "
     "2020, 2006.02924): it needs whole gradients of their own batches, without noise, and no "
     "scaled learning rate: leave out or change {x}"),
    (lambda t: t.zero_gamma and t.optimizer.name == "novograd_tfa",
     "optimizer novograd_tfa with zero_gamma: it divides by the norm of a variable's first "
     "gradient, which is 0 in a branch that starts closed, so the second step there is 32 times "
     "too long: use novograd"),
    (lambda t: t.lr_scaling == "adascale" and those(
        warmup_epochs=t.warmup_epochs, noise_batch=t.noise_batch,
        regime_adaptation=t.regime_adaptation, batch_growth=grows(t),
        normalisation=t.normalisation == "sync_batch_norm", optimizer=t.optimizer.name != "sgd"),
     "lr_scaling adascale is a rule for SGD (Johnson et al. 2020, 2007.05105): the noise between "
     "gradients of separate batches sets the learning rate, which climbs by itself, and for how "
     "many steps a step counts: leave out or change {x}"),
    (lambda t: grows(t) and those(
        schedule=t.schedule.name != "constant", noise_batch=t.noise_batch,
        regime_adaptation=t.regime_adaptation),
     "batch_growth lowers the gradient's noise in place of the learning rate, and takes fewer "
     "steps: leave out {x}, which would do so again or undo it"),
    (lambda t: t.warmup_epochs and t.warmup_from == "base" and t.lr_scaling == "none",
     "warmup_epochs {t.warmup_epochs:g} climb from the base learning rate to the scaled one, "
     "which lr_scaling none leaves the same: say warmup_from: zero, or warmup_epochs: 0"),
    (lambda t: getattr(t.optimizer, "nesterov", False) and t.optimizer.momentum == 0,
     "optimizer {t.optimizer.name}: nesterov looks ahead along the momentum, which is 0: say "
     "nesterov: false, or a momentum such as 0.9"),
    (lambda t: "" in getattr(t.optimizer, "exclude", ()),
     "optimizer: exclude '' would match every variable: leave it out"),
    (lambda t: _no_pattern(getattr(t.optimizer, "exclude", ())),
     "optimizer: exclude {x} is no regular expression: write parts of variable names, e.g. bias"),
    (lambda t: t.optimizer.name == "muon" and t.optimizer.fix_norm and t.normalisation == "none",
     "optimizer muon: fix_norm, which is on by default, gives convolutions a fixed length; only "
     "normalisation behind them makes that harmless, and normalisation is none: say fix_norm: "
     "false, or normalisation: batch_norm"),
)  # fmt: skip


def first_problem(rows: Rows, **subject: Any) -> str | None:
    """The first text that applies; None if nothing is wrong."""
    for condition, text in rows:
        if found := condition(**subject):
            return text.format(**subject, x=found)
    return None


def those(**wrong: object) -> str:
    """The keys of what is wrong."""
    return ", ".join(key for key, value in wrong.items() if value)


def grows(t: Technique) -> bool:
    return t.batch_growth.name == "grow"


def _no_pattern(patterns: tuple[str, ...]) -> str | None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            return f"{pattern!r} ({error})"
    return None
