"""Cells that would train something else than they say: refused with the reason and the cure."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tests.builders import config
from train.config.datasets import DATASETS
from train.config.optimizer import Muon, NovoGrad, NovoGradTfa, Sgd
from train.config.run import RunConfig
from train.config.schedule import Constant, Cosine, CropFlip, Grow, Polynomial, Step
from train.config.technique import Technique


def cell(technique: dict[str, Any], **changes: Any) -> RunConfig:
    row = Technique(**({"name": "t", "base_lr": 0.1, "base_batch": 64} | technique))
    return config(technique=row, **({"epochs": 12} | changes))


GHOSTS = {"normalisation": "ghost_batch_norm", "ghost_batch": 48}
NORM = {"normalisation": "batch_norm"}
RESNET50 = {"model": "resnet50", "dataset": "folder:a"}
OTHER = {"framework": "mirrored", "gpus": 2}
ADASCALE = {"lr_scaling": "adascale", "optimizer": Sgd()}
SYNC = {"normalisation": "sync_batch_norm"}
GROW = {"batch_growth": Grow(milestones=(0.5,))}
WARM = {"lr_scaling": "sqrt"}


@pytest.mark.parametrize(
    ("technique", "changes", "words"),
    [
        (GHOSTS, {"batch_per_rank": 256}, "ghost_batch 48 does not divide .* 256: use (32|64)"),
        (GHOSTS, {"batch_per_rank": 1}, "ghost_batch 48 does not divide batch_per_rank 1"),
        ({"reduction": "adasum"}, {"gpus": 6}, "power of two, found 6: use 4 or 8"),
        (
            ADASCALE, {"batch_per_rank": 128},
            "one batch of 128 per step, for a base_batch of 64: use accumulation or gpus of 2",
        ),
        (
            ADASCALE, {"batch_per_rank": 16, "gpus": 2},
            "above the base_batch of 64, found a global batch of 32: use .* at most 32",
        ),
        ({}, {"batch_per_rank": 10**30}, "images are more than any machine trains"),
        ({}, {"steps_per_epoch": 10**30}, "images are more than any machine trains"),
        ({"noise_batch": 128}, {}, "of 64 images, .* not taken away: use .* at most 64"),
        (GHOSTS, {**RESNET50, "batch_per_rank": 96}, "batch norm built in, .* use batch_norm"),
        ({**NORM, "zero_gamma": True}, RESNET50, "own network .* leave out zero_gamma"),
        ({**NORM, "standardise": True}, RESNET50, "own network .* leave out zero_gamma"),
        ({}, RESNET50, "normalisation none would have no effect: use batch_norm"),
        (NORM, {**RESNET50, "dataset": "digits"}, "RGB images .* 32 pixels, found digits with 8"),
        (NORM, {**RESNET50, "image_size": 31}, "found folder:a with 31: .* a larger image_size"),
        (SYNC, {"accumulation": 2, "gpus": 2}, "over 128 images, .* use ghost_batch_norm, or gpus"),
        (SYNC | GROW, {"gpus": 2}, "sync_batch_norm with accumulation or batch_growth: each"),
        ({"reduction": "adasum"}, {"accumulation": 2}, "tree is over ranks, .* use gpus in place"),
        ({"reduction": "adasum"} | GROW, {"gpus": 2}, "what one rank accumulates is averaged"),
        *(
            (
                {**WARM, "warmup_epochs": 12, "schedule": schedule}, {},
                f"the whole run of 12 epochs, so that schedule {schedule.name} would never begin",
            )
            for schedule in (Cosine(), Polynomial(), Step())
        ),
        (
            {**WARM, "warmup_epochs": 5, "schedule": Step()}, {},
            r"schedule: the milestones after \[4.5\] epochs fall into the warm-up of 5",
        ),
        (
            {**WARM, "warmup_epochs": 5.5, "schedule": Step(milestones=(3, 5, 7), unit="epochs")},
            {}, r"after \[3.0, 5.0\] epochs fall into .* of 5.5, .* fewer warmup_epochs",
        ),
        (
            {**WARM, "warmup_epochs": 7} | GROW, {},
            r"batch_growth: the milestones after \[6\] epochs fall into the warm-up of 7",
        ),
        ({"optimizer": NovoGradTfa()}, {"accumulation": 2}, "32 times too long .* use novograd"),
        (
            {"optimizer": NovoGradTfa(), "batch_growth": Grow(milestones=(0.5,))}, {},
            "novograd_tfa with accumulation .* use novograd",
        ),
        (
            {"schedule": Step(milestones=(3, 12), unit="epochs")}, {},
            r"milestones \[12.0\] \(epochs\) never fire in a run of 12 epochs: use earlier",
        ),
        (NORM, {"batch_per_rank": 1, "gpus": 2}, "batch_norm over one image: .* 2 or more"),
        (SYNC, {"batch_per_rank": 1}, "sync_batch_norm over one image: .* same for all images"),
        (NORM, {"batch_per_rank": 1, "model": "resnet_mini"}, "map of one pixel.*ation: none"),
        (
            NORM, {**RESNET50, "dataset": "cifar10", "batch_per_rank": 1},
            "model resnet50 normalises its last map of one pixel.* larger images",
        ),
        (
            {"optimizer": Muon()}, {"model": "resnet_mini"},
            "fix_norm, which is on by default, .* say fix_norm: false",
        ),
        (
            {"augmentation": CropFlip(cutout=64)}, {"dataset": "folder:a"},
            r"covers whole images of folder:a \(64 pixels\)",
        ),
        ({"batch_growth": Grow()}, {"epochs": 4}, r"epochs \[2, 3, 4\], which must differ and lie"),
        ({"batch_growth": Grow()}, {"epochs": 2}, "use fewer milestones or more epochs"),
        ({"batch_growth": Grow(milestones=(0.01,))}, {}, r"ends of epochs \[0\]"),
        ({"batch_growth": Grow(milestones=())}, {}, "must differ and lie between 1 and 11"),
        ({"augmentation": CropFlip()}, {}, "turns digits of digits into other .* say flip: none"),
        ({"augmentation": CropFlip(flip="random")}, {"dataset": "mnist"}, "say flip: none"),
        ({"augmentation": CropFlip(crop=8, flip="none")}, {}, "have 8: use at most 7"),
        (
            {"augmentation": CropFlip(cutout=32)}, {"dataset": "cifar10"},
            r"covers whole images of cifar10 \(32 pixels\): use at most 31",
        ),
        (
            {"augmentation": CropFlip(crop=16)}, {"dataset": "folder:a", "image_size": 16},
            "have 16: use at most 15",
        ),
        ({}, {**OTHER, "sharpness_images": 8}, "framework mirrored .* do sharpness_images as"),
        (GROW, {"steps_per_epoch": 3}, "steps_per_epoch: batch_growth counts in passes"),
        (ADASCALE, {"steps_per_epoch": 3}, "adascale counts in passes .* leave one out"),
        ({}, {"width": 2}, "width and shortcuts are for resnet_mini, found model cnn"),
        ({}, {"shortcuts": False}, "width and shortcuts are for resnet_mini, found model cnn"),
        (NORM, {"model": "mlp", "batch_per_rank": 1}, "its last hidden vector, which would be"),
        (NORM, {"model": "linear"}, "no hidden layer .* normalisation: none"),
        ({"precision": "mixed_bfloat16"}, {"sharpness_images": 8}, "need precision float32"),
        ({"compression": "fp16"}, OTHER, "framework mirrored .* compression .* horovod"),
        ({"reduction": "adasum"}, OTHER, "cannot do reduction as given"),
        ({"normalisation": "sync_batch_norm"}, OTHER, "cannot do normalisation as given"),
        (ADASCALE, OTHER, "cannot do lr_scaling as given"),
        ({"precision": "mixed_float16"}, OTHER, "cannot do precision as given"),
        ({}, {**OTHER, "accumulation": 2}, "cannot do accumulation as given"),
        ({"batch_growth": Grow(), "compression": "bf16"}, OTHER, "do compression, batch_growth as"),
    ],
)  # fmt: skip
def test_what_is_refused(technique: dict[str, Any], changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        cell(technique, **changes)


@pytest.mark.parametrize(
    ("technique", "changes"),
    [
        (GHOSTS, {"batch_per_rank": 96, "accumulation": 3}),
        ({"reduction": "adasum"}, {"gpus": 8}),
        ({"reduction": "adasum"}, {"gpus": 1}),
        (ADASCALE, {}),  # at the base batch there is nothing to compare
        (ADASCALE, {"batch_per_rank": 128, "accumulation": 2}),
        ({"noise_batch": 128}, {"gpus": 2}),
        (NORM, RESNET50),
        (NORM, {**RESNET50, "batch_per_rank": 1}),  # 64 pixels become 2
        (NORM, {"model": "resnet_mini", "dataset": "cifar10", "batch_per_rank": 1}),
        ({"optimizer": Muon(fix_norm=False)}, {"model": "resnet_mini"}),
        ({"optimizer": Muon()} | NORM, {"model": "resnet_mini"}),
        (NORM, {**RESNET50, "dataset": "cifar10"}),
        (SYNC, {"gpus": 2}),
        ({**WARM, "warmup_epochs": 12, "schedule": Constant()}, {}),
        ({**WARM, "warmup_epochs": 4.5, "schedule": Step()}, {}),  # falls when it has climbed
        ({**WARM, "warmup_epochs": 3, "schedule": Step(milestones=(0.3,))}, {"epochs": 10}),
        ({**WARM, "warmup_epochs": 6} | GROW, {}),
        ({"optimizer": NovoGrad()}, {"accumulation": 2}),
        ({"schedule": Step(milestones=(3, 11), unit="epochs")}, {}),
        ({"batch_growth": Grow()}, {"epochs": 6}),
        ({"augmentation": CropFlip(crop=1, flip="none")}, {}),
        ({"augmentation": CropFlip(crop=4, cutout=8)}, {"dataset": "cifar10"}),
        (NORM, {"framework": "multi_worker_mirrored", "gpus": 2}),
    ],
)
def test_what_is_not(technique: dict[str, Any], changes: dict[str, Any]) -> None:
    made = cell(technique, **changes)
    assert RunConfig.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize("dataset", DATASETS)
def test_resnet50_takes_the_data_sets_in_colour(dataset: str) -> None:
    if DATASETS[dataset].shape[2] == 3:
        cell(NORM, **{**RESNET50, "dataset": dataset})
        return
    with pytest.raises(ValidationError, match=f"found {dataset} with"):
        cell(NORM, **{**RESNET50, "dataset": dataset})


@pytest.mark.parametrize("batch", range(2, 200, 7))
def test_the_ghost_size_that_a_message_names_does_divide(batch: int) -> None:
    if batch % 48 == 0:
        return
    with pytest.raises(ValidationError) as caught:
        cell(GHOSTS, batch_per_rank=batch)
    (error,) = caught.value.errors()
    named = int(error["msg"].rsplit(" ", 1)[1])
    assert batch % named == 0
    cell({**GHOSTS, "ghost_batch": named}, batch_per_rank=batch)
