"""Other shapes of experiment, end to end: image folders with ResNet-50, synthetic data, strong
scaling, and the course's option 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.sweeps import make_bench

pytestmark = pytest.mark.ranks2


def paint_folder(folder: Path) -> None:
    """Three classes of pictures of mixed size and mode; the colour tells the class."""
    random = np.random.default_rng(0)
    for label, colour in (
        ("blue", (20, 30, 220)),
        ("green", (20, 200, 40)),
        ("red", (230, 40, 30)),
    ):
        (folder / label).mkdir(parents=True)
        for index in range(20):
            height, width = random.integers(20, 90, 2)
            noise = random.integers(-20, 20, (height, width, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            image = Image.fromarray(pixels).convert(("RGB", "RGBA", "P", "CMYK")[index % 4])
            image.save(folder / label / f"{index:02d}.{('jpg', 'png', 'gif', 'tif')[index % 4]}")


def test_resnet50_on_a_folder_of_mixed_images(tmp_path, data_root) -> None:
    pictures = tmp_path / "my pictures"
    paint_folder(pictures)
    bench = make_bench(
        tmp_path / "bench", data_root,
        f"""
title: a folder
dataset: 'folder:{pictures}'
image_size: 32
model: resnet50
epochs: 1
batch_per_rank: 8
matrix: {{gpus: [2], technique: [batch_norm], seed: [0]}}
""",
    )  # fmt: skip
    done = bench.run(timeout_s=400)
    assert done.returncode == 0, done.stderr
    (record,) = bench.records()
    assert record.cell_id.startswith("my_pictures-resnet50-batch_norm-g2-s0-")
    assert record.data.classes == 3 and record.data.train_images == 48
    assert record.epochs[0].steps == 3 and record.epochs[0].validation_images == 12
    assert record.throughput.images_per_s is None, "one epoch is no steady state"
    assert "throughput.images_per_s" in record.missing


def test_synthetic_data_has_a_throughput_and_no_accuracy(tmp_path, data_root) -> None:
    bench = make_bench(
        tmp_path, data_root,
        """
title: throughput only
dataset: synthetic
model: cnn
epochs: 2
data_fraction: 0.02
batch_per_rank: 100
matrix: {gpus: [1], technique: [naive], seed: [0]}
""",
    )  # fmt: skip
    assert bench.run().returncode == 0
    (record,) = bench.records()
    assert record.throughput.images_per_s > 0
    for epoch in record.epochs:
        assert epoch.train_accuracy is None and epoch.validation_accuracy is None
    assert "no meaning" in record.missing["epochs.validation_accuracy"]


def test_strong_scaling_and_option_2(tmp_path, data_root) -> None:
    bench = make_bench(
        tmp_path, data_root,
        """
title: one global batch
dataset: digits
model: cnn
epochs: 2
scaling: strong
global_batch: 128
partition: whole
matrix: {gpus: [1, 2], technique: [naive], seed: [0]}
""",
    )  # fmt: skip
    assert bench.run().returncode == 0
    for record in bench.records():
        assert record.config.global_batch == 128
        assert record.config.batch_per_rank == 128 // record.config.gpus
        assert record.data.order.startswith("option 2")
