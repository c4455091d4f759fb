"""Cells that would train something other than they say, without an error, or that cannot run.

Records of such cells load. Rows are those of :mod:`train.config.consistency`; ``p`` is the cell's
plan, ``has`` what its network has.
"""

from __future__ import annotations

import math

from train.config.consistency import rise_within
from train.config.networks import NETWORKS, Feature
from train.config.optimizer import NOT_ADAPTED
from train.config.run import RunConfig
from train.config.technique import Rows, first_problem, those

#: Left out, because shipped sweeps and published records have them: bn_momentum with re-estimated
#: statistics, muon's ``rest: lamb`` with ``dense``. One rank, one ghost a batch and the base batch
#: are the first points of a series: what acts between ranks, on ghosts or on larger batches has no
#: effect there.
NEW_CELL: Rows = (
    (lambda c, t: t.optimizer.name == "larc" and (t.optimizer.base, t.optimizer.clip)
     != ("sgd", True),
     "optimizer larc: base {t.optimizer.base} with clip {t.optimizer.clip} is no longer trained "
     "(records of it load): leave out base and clip, which are sgd and true"),
    (lambda c, t: t.noise_batch and t.noise_batch < c.global_batch
     and not (t.clip_norm and t.warmup_epochs) and (c.global_batch / t.noise_batch - 1) ** 0.5,
     "noise_batch {t.noise_batch} multiplies the gradients of {c.global_batch:,} images by weights "
     "with a deviation of {x:.1f}, which needs a clip and a warm-up: set clip_norm, e.g. 1.0, and "
     "warmup_epochs, with warmup_from: zero where no rule scales the learning rate"),
    (lambda c, t: c.model not in NETWORKS and (t.zero_gamma or t.initialisation != "glorot"),
     "zero_gamma and initialisation are for the built-in networks, and model {c.model:.24} runs as "
     "built: leave them out"),
    (lambda c, t: those(
        bn_momentum=t.normalisation == "none" and t.bn_momentum != 0.9,
        bn_momentum_per=t.bn_momentum_per != "ghost" and t.bn_statistics == "reestimated",
        exclude=t.optimizer.name in ("sgd", "adamw", "novograd")
        and t.optimizer.weight_decay == 0 and t.optimizer.exclude != NOT_ADAPTED,
        rest_rate=t.optimizer.name == "lars" and not t.optimizer.exclude
        and t.optimizer.rest_rate != 1,
        schedule=getattr(t.schedule, "final", 0) == 1,
        augmentation=t.augmentation.name == "crop_flip" and t.augmentation.flip == "none"
        and t.augmentation.crop == t.augmentation.cutout == 0),
     "{x} as given has no effect here: leave it out, or set what it acts on"),
)  # fmt: skip

#: By what the network has.
NETWORK: Rows = (
    (lambda c, t, has: t.initialisation == "whitened" and "conv1" not in has,
     "initialisation whitened sets the filters of a first convolution, conv1, which model "
     "{c.model:.24} does not have: say initialisation: he"),
    (lambda c, t, has: t.zero_gamma and "residual branches" not in has,
     "zero_gamma is about residual branches, which model {c.model:.24} does not have (resnet_mini "
     "has them, with shortcuts): leave it out"),
    (lambda c, t, has: t.optimizer.name == "muon" and not t.optimizer.dense
     and "convolutions" not in has,
     "optimizer muon orthogonalises convolutions, which model {c.model:.24} does not have, so it "
     "would be {t.optimizer.rest} at {t.optimizer.rest_rate:g} times the learning rate: say "
     "dense: true, or use another optimizer"),
    (lambda c, t, has: "batch norm" not in has and those(
        normalisation=t.normalisation in ("ghost_batch_norm", "sync_batch_norm"),
        bn_statistics=t.bn_statistics == "reestimated"),
     "{x} as given needs batch normalisation, which model {c.model:.24} does not have, or only "
     "frozen: say normalisation: none, and leave bn_statistics out"),
)  # fmt: skip

#: Of cells whose number of steps is known.
PLAN: Rows = (
    (lambda p, c, t: t.warmup_epochs and not p.warmup_steps
     and (p.step_at(1), math.ceil(1000 / p.step_at(1)) / 1000),
     "warmup_epochs {t.warmup_epochs:g} of {x[0]:,.0f} steps each come to 0 steps, so there "
     "would be no warm-up: set warmup_epochs to 0, or to {x[1]:g} (one step) or more"),
    (lambda p, c, t: (s := t.schedule).name == "step"
     and not rise_within(steps := [p.milestone(s, m) for m in s.milestones], 1, p.horizon - 1)
     and ([*s.milestones], steps, p.horizon - 1,
          least := (c.epochs if s.unit == "epochs" else 1) / p.horizon,
          least * (p.horizon - 1)),
     "schedule: the milestones {x[0]} come to the steps {x[1]} of {p.horizon:,}; they must rise, "
     "and lie within 1 to {x[2]:,}: use values from {x[3]:.2g} to {x[4]:.4g}, at least "
     "{x[3]:.2g} apart"),
    (lambda p, c, t: c.target is not None and c.target.held_for > (n := len(p.epochs)) and n,
     "target: held_for {c.target.held_for} asks for more evaluations than a run of {x} epochs "
     "has: set held_for to {x} or less, or more epochs"),
)  # fmt: skip


def new_cell_problem(config: RunConfig) -> str | None:
    """What is wrong with a cell that is to be trained; of a network that is not built in, only what
    the config shows: see :func:`network_problem`."""
    if text := first_problem(NEW_CELL, c=config, t=config.technique):
        return text
    has = NETWORKS.get(config.model)
    if has is None:
        return None
    return network_problem(config, has if config.shortcuts else has - {"residual branches"})


def network_problem(config: RunConfig, has: frozenset[Feature]) -> str | None:
    return first_problem(NETWORK, c=config, t=config.technique, has=has)
