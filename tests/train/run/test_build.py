"""What the config asks for is plugged in: seen in a built cell and in what its run leaves."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests import builders
from tests.builders import config
from tests.invariants import Invariant
from tests.train.data.raw_files import class_folders, picture
from tests.train.trainer.test_trainer import cell, squares, steps_of
from train.config.optimizer import Sgd
from train.config.schedule import Grow, Polynomial
from train.config.technique import Technique

pytestmark = pytest.mark.tf


def row(**changes: Any) -> Technique:
    fields = {"base_lr": 0.05, "base_batch": 4, "optimizer": Sgd(momentum=0.9)}
    return builders.row(**(fields | changes))


def test_a_cell_of_a_sweep_lists_no_raw_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from train.config.datasets import forms_key
    from train.data.registry import DatasetFiles
    from train.distributed.communicator import ALONE
    from train.distributed.launch import Task
    from train.distributed.world import Runtime
    from train.run.build import open_data

    pets = class_folders(tmp_path / "pets", {"cat": 20, "dog": 20})
    asked = config(dataset="folder:pets", image_size=8, validate_on="train_part")
    task, seen = Task(tmp_path / "sweep" / "cell", tmp_path), list[object]()

    def opened(*, supervised: bool) -> tuple[int, int]:
        """Images, and how often the folder was listed."""
        seen.clear()
        data = open_data(
            asked, task, Runtime(ALONE, "none", ()), lambda _: None, supervised=supervised
        )
        return len(data.train_y) + len(data.validation_y), seen.count(pets)

    listed = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: seen.append(folder) or listed(folder))
    files, key = DatasetFiles("folder:pets", tmp_path, 8), forms_key("folder:pets", 8, tmp_path)
    form = files.prepare()
    task.out.mkdir(parents=True)
    (task.out.parent / "forms.json").write_text(json.dumps({key: form.name}))
    assert opened(supervised=True) == (32, 0)
    picture(pets / "cat" / "new.png")
    assert opened(supervised=True) == (32, 0), "as the sweep planned it"
    images, times = opened(supervised=False)
    assert images == 33 and times, "a person's start takes the files as they are"
    assert opened(supervised=False) == (33, 1)
    shutil.rmtree(form)
    assert opened(supervised=True)[0] == 33, "a form that is gone is made of what is there"
    assert files.forms() != (form.name,)


def test_a_start_counts_no_pixels_that_were_counted_when_the_data_were_prepared() -> None:
    from train.data.dataset import channel_statistics

    standard, data = row(standardise=True), squares()
    counted = channel_statistics(data.train_x, np.arange(len(data.train_y)))
    with patch("train.run.build.channel_statistics", side_effect=AssertionError):
        known = replace(data, channels=counted)
        found = built(technique=standard, data=known).model.get_layer("scale")
        with pytest.raises(AssertionError):
            built(technique=standard, data=known, data_fraction=0.5)
    usual = built(technique=standard).model.get_layer("scale")
    assert (found.scale, found.offset) == (usual.scale, usual.offset)


def built(rank: int = 0, size: int = 1, **changes: Any) -> Any:
    from train.distributed.communicator import Ranks
    from train.distributed.world import Runtime
    from train.run.build import build_parts

    data = changes.pop("data", None) or squares()
    given = config(**({"batch_per_rank": 8} | changes))
    return build_parts(given, data, Runtime(Ranks(rank, size), "none", ()))


def test_adascale_sees_the_base_batch_and_drives_the_run_s_clock(
    tmp_path: Path, invariant: Invariant
) -> None:
    """Batches of 8, two of them a step; the base rate is for 4. Algorithm 1 of 2007.05105 by hand,
    from the recorded norms of the steps before; plain means, as 2 gradients a step are few."""
    scaled = row(lr_scaling="adascale", schedule=Polynomial(power=1), optimizer=Sgd())
    run = cell(config(technique=scaled, epochs=4, batch_per_rank=8, accumulation=2), tmp_path)
    steps = steps_of(run)
    run.train()
    assert len(steps) == 4 * 5
    traces, squares_, gains, rates = [], [], [], []
    horizon = 4 * (83 // 4)
    for step in steps:
        small, big = step.small_sq, step.gradient_sq
        trace, true_sq = (np.mean(x) if x else 0 for x in (traces, squares_))
        below = trace / 16 + true_sq
        clock = sum(gains)
        gains.append((trace / 4 + true_sq) / below if below else 1.0)
        rates.append(gains[-1] * 0.05 * (1 - min(1, clock / horizon)))
        traces.append(max((small - big) / (1 / 8 - 1 / 16), 0))
        squares_.append(max((16 * big - 8 * small) / (16 - 8), 0))
    assert max(gains) > 1.5, "or a gain of 1 would pass"
    name = "T16 AdaScale"
    off = max(abs(step.gain / gain - 1) for step, gain in zip(steps, gains, strict=True))
    invariant(name, "20 recorded gains, base batch 4, by hand", off, 1e-5)
    off = max(abs(step.rate / rate - 1) for step, rate in zip(steps, rates, strict=True))
    invariant(name, "20 recorded rates on the clock of gains, by hand", off, 1e-5)
    assert run.loop.position == pytest.approx(sum(gains), rel=1e-5)


def test_noise_is_told_of_the_batches_that_it_was_measured_on(tmp_path: Path) -> None:
    """One gradient of 4 images; 8 a step at first, 16 where the batch has grown."""
    grown = row(batch_growth=Grow(milestones=(0.5,), factor=2, largest=32))
    run = cell(config(technique=grown, epochs=2, batch_per_rank=4, accumulation=2), tmp_path)
    first, last = run.train().epochs
    assert (first.noise.batch_small, first.noise.batch_big) == (4, 8)
    assert (last.noise.batch_small, last.noise.batch_big) == (4, 16)


def test_ranks_draw_from_streams_of_their_own() -> None:
    """Dropout and gradient noise: with one stream for all, ranks repeat each other's draws."""
    streams = [int(built(rank, 4, gpus=4).step.seed.value[0]) for rank in range(4)]
    assert len(set(streams)) == 4
    assert int(built(1, 4, gpus=4, seed=1).step.seed.value[0]) not in streams


def test_standardising_is_by_the_used_training_images() -> None:
    standard = row(standardise=True)
    parts = built(technique=standard, data_fraction=0.5)
    assert len(parts.used) == 41
    scale = parts.model.get_layer("scale")
    seen = scale(squares().train_x[parts.used]).numpy()
    assert (seen.mean(), seen.std()) == pytest.approx((0, 1), abs=1e-5)
    others = scale(squares().validation_x).numpy()
    assert abs(others.mean()) > 1e-3, "they are not what it was made from"


def test_whitened_first_filters_are_components_of_the_used_images_and_their_opposites() -> None:
    from train.models.pixels import principal_patches

    whitened = row(initialisation="whitened", normalisation="batch_norm")
    parts = built(technique=whitened, model="resnet_mini", data_fraction=0.5)
    kernel = np.moveaxis(parts.model.get_layer("conv1").kernel.numpy(), -1, 0).reshape(64, -1)
    assert kernel[32:] == pytest.approx(-kernel[:32])
    images = squares().train_x[parts.used].astype(np.float32) / 255
    found = principal_patches([images], (7, 7))[:32]
    clear = slice(0, 3)  # directions that round-off does not turn
    assert kernel[clear] == pytest.approx(np.sqrt(2) * found[clear], abs=1e-3)
