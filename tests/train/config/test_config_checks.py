"""Cells that would train something other than they say: refused with the reason and what to do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from tests import builders
from train.config import checks, consistency
from train.config.optimizer import Lamb, Larc, Lars, Muon, NovoGrad, NovoGradTfa, Sgd
from train.config.plan import plan_of
from train.config.run import RunConfig, Target
from train.config.schedule import Constant, Cosine, CropFlip, Grow, StepDecay
from train.config.technique import TECHNIQUE
from train.errors import ConfigError

IMAGES = 1000  # of training
GHOSTS = {"normalisation": "ghost_batch_norm", "ghost_batch": 48}
NORM = {"normalisation": "batch_norm"}
SYNC = {"normalisation": "sync_batch_norm"}
GROW = {"batch_growth": Grow(milestones=(0.5,))}
WARM = {"lr_scaling": "sqrt"}
ADASUM = {"reduction": "adasum"}
ADASCALE = {"lr_scaling": "adascale", "optimizer": Sgd()}
MINI = {"model": "resnet_mini"}
RESNET50 = {"model": "resnet50", "dataset": "folder:a"}
OTHER = {"framework": "mirrored", "gpus": 2}


def cell(row: dict[str, Any], **changes: Any) -> RunConfig:
    technique = builders.row(**{"base_lr": 0.1, "base_batch": 64} | row)
    return builders.config(technique=technique, **({"epochs": 12} | changes))


#: Refused wherever a config is read.
ALWAYS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"normalisation": "ghost_batch_norm"}, {}, "needs ghost_batch, e.g. 128"),
    ({"ghost_batch": 32, "bn_momentum_per": "batch"}, {},
     "ghost_batch, bn_momentum_per has no effect .* none: say normalisation: ghost"),
    ({"zero_gamma": True, "bn_statistics": "reestimated", "initialisation": "whitened"}, {},
     "bn_statistics, zero_gamma, initialisation as given .* is none: choose one, e.g. batch_norm"),
    (ADASUM | SYNC | {"compression": "fp16", "lr_scaling": "sqrt", "noise_batch": 8}, {},
     "adasum .* leave out or change compression, lr_scaling, noise_batch, normalisation"),
    (NORM | {"zero_gamma": True, "optimizer": NovoGradTfa()}, MINI, "32 times too long: use novog"),
    (SYNC | GROW | {"lr_scaling": "adascale", "warmup_epochs": 2, "noise_batch": 64,
                    "regime_adaptation": True}, {},
     "warmup_epochs, noise_batch, regime_adaptation, batch_growth, normalisation, optimizer"),
    (GROW | {"schedule": Cosine(), "noise_batch": 64, "regime_adaptation": True}, {},
     "batch_growth .* leave out schedule, noise_batch, regime_adaptation$"),
    ({"warmup_epochs": 2}, {}, "warmup_epochs 2 climb from the base .* say warmup_from: zero"),
    ({"optimizer": Sgd(nesterov=True)}, {}, "optimizer sgd: nesterov .* which is 0: say nesterov"),
    ({"optimizer": Muon(momentum=0)}, {}, "optimizer muon: nesterov looks ahead .* which is 0"),
    ({"optimizer": Lars(exclude=("",))}, {}, "'' would match every variable: leave it out"),
    ({"optimizer": Lars(exclude=("bias", "ga(mma"))}, {}, r"'ga\(mma' \(.*\) is no regular exp"),
    ({"optimizer": Muon()}, MINI, "fix_norm, which is on by default, .* say fix_norm: false"),
    ({}, {"batch_per_rank": 10**30}, "images are more than any machine trains"),
    ({}, {"steps_per_epoch": 10**30}, "images are more than any machine trains"),
    ({}, {"image_size": 64}, "image_size is for folder:PATH"),
    ({}, {"pretrained": "w.h5"}, "pretrained weights are for resnet50"),
    ({}, {"width": 2}, "width and shortcuts are for resnet_mini, found model cnn"),
    ({}, {"shortcuts": False}, "width and shortcuts are for resnet_mini, found model cnn"),
    (NORM, {"model": "linear"}, "no hidden layer .* normalisation: none"),
    ({"precision": "mixed_bfloat16"}, {"sharpness_images": 8}, "need precision float32"),
    ({"precision": "tf32"}, {"sharpness_images": 8}, "need precision float32, found tf32"),
    (WARM | {"warmup_epochs": 15}, {}, "warmup_epochs 15 are more than the run of 12 epochs"),
    (GROW, {"steps_per_epoch": 3}, "steps_per_epoch: batch_growth as given counts in"),
    (ADASCALE, {"steps_per_epoch": 3}, "lr_scaling as given counts in passes .* leave one"),
    ({}, {"target": Target()}, "target: it needs train_accuracy, validation_accuracy or both"),
    ({}, {"dataset": "synthetic", "target": Target(train_accuracy=0.5)}, "random, so no accuracy"),
    (GHOSTS, {"batch_per_rank": 256}, "ghost_batch 48 does not divide batch_per_rank 256"),
    (NORM, {"batch_per_rank": 1, "gpus": 2}, "batch_norm over one image: .* 2 or more"),
    (SYNC, {"batch_per_rank": 1}, "sync_batch_norm over one image: .* same for all images"),
    (NORM, RESNET50 | {"dataset": "cifar10", "batch_per_rank": 1}, "resnet50 .* larger images"),
    (ADASUM, {"gpus": 6}, "power of two, found 6: use 4 or 8"),
    (ADASCALE, {"batch_per_rank": 16, "gpus": 2}, "batch of 32: use .* at most 32"),
    (ADASCALE, {"batch_per_rank": 128}, "one batch of 128 per step, .* gpus of 2"),
    ({"noise_batch": 128}, {}, "of 64 images, .* not taken away: use .* at most 64"),
    ({}, RESNET50, "own batch norm .* use normalisation: batch_norm"),
    (NORM, RESNET50 | {"image_size": 31}, "found 31 x 31: .* a larger image_size"),
    ({}, {"model": "keras.applications.Xception", "dataset": "cifar10"}, "at least 71 pixels"),
    (NORM | {"standardise": True}, RESNET50, "preparation of images: .* leave out zero_gamma"),
    (SYNC, {"accumulation": 2}, "accumulation or batch_growth: normalisation as given would"),
    ({"optimizer": NovoGradTfa()}, {"accumulation": 2}, "32 times too long .* use novograd"),
    (ADASUM | GROW, {"gpus": 2}, "accumulation or batch_growth: reduction as given would act on"),
    (WARM | {"warmup_epochs": 12, "schedule": Cosine()}, {}, "before schedule cosine begins: use"),
    (WARM | {"warmup_epochs": 5, "schedule": StepDecay()}, {},
     r"after \[4.5\] epochs .* warm-up of 5"),
    (WARM | {"warmup_epochs": 7} | GROW, {}, r"after \[6\] epochs fall into the warm-up of 7"),
    ({"schedule": StepDecay(milestones=(3, 12), unit="epochs")}, {},
     "unit: epochs .* less than 12;"),
    ({"schedule": StepDecay(milestones=(0.5, 0.2))}, {},
     r"0.2\] with unit: fraction must rise and "),
    ({"schedule": StepDecay(milestones=(15, 25))}, {},
     "be less than 1; for epochs say unit: epochs"),
    ({"batch_growth": Grow()}, {"epochs": 4}, r"epochs \[2, 3, 4\], which must rise and lie"),
    ({"batch_growth": Grow(milestones=(0.5, 0.2))}, {}, r"ends of epochs \[6, 2\], which must"),
    ({"batch_growth": Grow(milestones=(0.01,))}, {}, r"ends of epochs \[0\]"),
    ({"batch_growth": Grow(milestones=())}, {}, "must rise and lie between 1 and 11"),
    ({"augmentation": CropFlip()}, {}, "turns digits of digits into other .* say flip: none"),
    ({"augmentation": CropFlip(crop=8, flip="none")}, {}, "crop 8 .* 8 pixels: use at most 7"),
    ({"augmentation": CropFlip(cutout=64)}, {"dataset": "folder:a"}, "cutout 64 .* 64 pixels"),
    ({"compression": "fp16"}, OTHER | {"accumulation": 2}, "do compression, accumulation as given"),
]  # fmt: skip

#: Refused where a cell is to be trained; a record that holds it loads.
NEW: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"optimizer": Larc(base="adam")}, {}, "base adam with clip True is no longer trained .*leave"),
    ({"optimizer": Larc(clip=False)}, {}, "base sgd with clip False is no longer trained"),
    ({"bn_momentum": 0.99, "optimizer": Sgd(exclude=()), "schedule": Cosine(final=1),
      "augmentation": CropFlip(flip="none")}, {},
     ": bn_momentum, exclude, schedule, augmentation as given has no effect"),
    (GHOSTS | {"ghost_batch": 32, "bn_momentum_per": "batch", "bn_statistics": "reestimated"}, {},
     ": bn_momentum_per as given has no effect"),
    ({"optimizer": Lars(rest_rate=0.1, exclude=())}, {}, ": rest_rate as given has no effect"),
    (NORM | {"initialisation": "whitened"}, {"model": "mlp"}, "conv1, which model mlp does not"),
    *((NORM | {"zero_gamma": True}, changes, "residual branches, which model .* leave it out")
      for changes in ({"model": "mlp"}, {"model": "cnn"}, MINI | {"shortcuts": False})),
    (NORM | {"optimizer": Muon()}, {"model": "mlp"}, "adam at 0.1 times the .* dense: true"),
    ({"optimizer": Muon(fix_norm=False, rest="lamb")}, {"model": "linear"}, "it would be lamb at"),
    *(({"noise_batch": 8} | tamed, {}, "deviation of 2.6, .* set clip_norm, e.g. 1.0, and warmup")
      for tamed in (WARM | {"warmup_epochs": 1}, {"clip_norm": 1.0})),
    (NORM | {"zero_gamma": True}, {"model": f"a.py:build@{'0' * 64}"}, "runs as built: le"),
    (WARM | {"warmup_epochs": 0.01}, {}, r"of 15 steps .* or to 0.067 \(one step\)"),
    ({"schedule": StepDecay(milestones=(0.5, 0.501))}, {},
     r"\[90, 90\] of 180; .* 0.0056 to 0.9944"),
    ({}, {"target": Target(train_accuracy=0.7, held_for=13)}, "than a run of 12 epochs has: set"),
]  # fmt: skip


def refusal(row: dict[str, Any], changes: dict[str, Any], *, always: bool) -> str:
    if always:
        with pytest.raises(ValidationError) as invalid:
            cell(row, **changes)
        return str(invalid.value.errors()[0]["msg"])
    made = cell(row, **changes)
    assert RunConfig.model_validate_json(made.model_dump_json()) == made
    with pytest.raises(ConfigError) as refused:
        plan_of(made, IMAGES)
    return str(refused.value)


@pytest.mark.parametrize(("row", "changes", "words"), ALWAYS)
def test_what_is_refused(row: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    assert re.search(words, refusal(row, changes, always=True))


@pytest.mark.parametrize(("row", "changes", "words"), NEW)
def test_what_is_no_longer_trained_and_still_read(
    row: dict[str, Any], changes: dict[str, Any], words: str
) -> None:
    assert re.search(words, refusal(row, changes, always=False))


def test_every_row_of_the_tables_is_tried() -> None:
    """But what only networks of one's own can lack, or have."""
    texts = [refusal(*case[:2], always=True) for case in ALWAYS]
    texts += [refusal(*case[:2], always=False) for case in NEW]
    tables = (
        TECHNIQUE, consistency.CELL, consistency.IMAGES,
        checks.NEW_CELL, checks.NETWORK, checks.PLAN,
    )  # fmt: skip
    untried = []
    for _, template in (row for table in tables for row in table):
        fixed = [re.escape(part) for part in re.split(r"\{[^}]*\}", template)]
        if not any(re.search(".*".join(fixed), text) for text in texts):
            untried.append(template)
    assert [text.split("}")[0] for text in untried] == [
        "bn_momentum {t.bn_momentum:g", "Keras prepares images for {c.model",
        "{x",
    ]  # fmt: skip


def test_a_network_is_judged_by_what_it_has() -> None:
    """As when a network of one's own is built."""
    ghosts = cell(GHOSTS, batch_per_rank=48)
    text = checks.network_problem(ghosts, frozenset({"convolutions"}))
    assert (
        text is not None
        and "which model cnn does not have, or only frozen: say normalisation: none" in text
    )
    assert checks.network_problem(ghosts, frozenset({"batch norm"})) is None
    with pytest.raises(ValidationError, match=r"vit.py:build@\w+ runs as built, with its own"):
        cell(NORM | {"bn_momentum": 0.99}, model=f"vit.py:build@{'f0' * 32}")


@pytest.mark.parametrize(
    ("row", "changes"),
    [
        (GHOSTS, {"batch_per_rank": 96, "accumulation": 3}),
        (GHOSTS | {"bn_statistics": "reestimated"}, {"batch_per_rank": 48}),
        (ADASUM | NORM, {"gpus": 8}),
        (ADASUM, {"gpus": 1}),
        (ADASCALE | {"schedule": Cosine()}, {}),  # at the base batch there is nothing to compare
        (ADASCALE, {"batch_per_rank": 128, "accumulation": 2}),
        ({"noise_batch": 128}, {"gpus": 2}),
        (SYNC, {"batch_per_rank": 1, "gpus": 2}),
        (NORM, {**RESNET50, "batch_per_rank": 1}),  # 64 pixels become 2
        (NORM, {**MINI, "dataset": "cifar10", "batch_per_rank": 1}),
        (NORM | {"zero_gamma": True, "initialisation": "whitened"}, MINI),
        (NORM | {"optimizer": Muon(), "initialisation": "whitened"}, {}),
        ({"optimizer": Muon(fix_norm=False, dense=True)}, {"model": "mlp"}),
        ({"optimizer": Muon(momentum=0, nesterov=False, fix_norm=False)}, {}),
        (WARM | {"warmup_epochs": 12, "schedule": Constant()}, {}),
        (WARM | {"warmup_epochs": 4.5, "schedule": StepDecay()}, {}),  # falls when it has climbed
        (WARM | {"warmup_epochs": 3, "schedule": StepDecay(milestones=(0.3,))}, {"epochs": 10}),
        (WARM | {"warmup_epochs": 6} | GROW, {}),
        ({"warmup_epochs": 2, "warmup_from": "zero"}, {}),
        ({"optimizer": NovoGrad(weight_decay=0.1, exclude=())}, {"accumulation": 2}),
        ({"optimizer": Lamb(exclude=())}, {}),
        ({"schedule": StepDecay(milestones=(3, 11), unit="epochs")}, {}),
        ({"batch_growth": Grow(largest=500), "lr_scaling": "linear"}, {"epochs": 6}),
        ({"regime_adaptation": True, "clip_norm": 1.0, "lr_scaling": "sqrt"}, {}),
        ({"augmentation": CropFlip(crop=1, flip="none")}, {}),
        ({"augmentation": CropFlip(crop=4, cutout=8)}, {"dataset": "cifar10"}),
        ({"precision": "tf32"} | NORM, {"framework": "multi_worker_mirrored", "gpus": 2}),
    ],
)
def test_what_is_not(row: dict[str, Any], changes: dict[str, Any]) -> None:
    made = cell(row, **changes)
    assert RunConfig.model_validate_json(made.model_dump_json()) == made
    assert checks.new_cell_problem(made) is None
