"""The artists' experiment, small: ResNet-50 on a folder of paintings as people keep them, on two
ranks, with what each class got in the record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.sweeps import make_bench
from tests.train.data.paintings import paint_folder

COUNTS = {"durer": 27, "klimt": 18, "monet": 36, "turner": 45}
#: A fifth of each class, rounded.
HELD_OUT = (5, 4, 7, 9)
SWEEP = """
title: the artists
dataset: 'folder:{pictures}'
image_size: 32
model: resnet50
epochs: 2
batch_per_rank: 16
matrix: {{gpus: [2], technique: [batch_norm], seed: [0]}}
"""


@pytest.mark.ranks2
@pytest.mark.slow
def test_each_class_of_a_folder_is_in_the_record(tmp_path: Path, data_root: Path) -> None:
    pictures = paint_folder(tmp_path / "Great Artists", COUNTS)
    bench = make_bench(tmp_path / "bench", data_root, SWEEP.format(pictures=pictures))
    done = bench.run(timeout_s=1100)
    assert done.returncode == 0, done.stderr
    (record,) = bench.records()
    assert record.cell_id.startswith("great_artists-resnet50-batch_norm-g2-s0-")
    last, found = record.epochs[-1], record.classification
    assert found is not None and found.epoch == last.epoch == 2
    assert tuple(score.name for score in found.classes) == tuple(COUNTS)
    assert tuple(score.support for score in found.classes) == HELD_OUT
    matrix = np.array(found.confusion)
    assert matrix.sum(axis=1).tolist() == list(HELD_OUT)
    assert matrix.sum() == record.data.validation_images == last.validation_images == sum(HELD_OUT)
    assert np.trace(matrix) / matrix.sum() == last.validation_accuracy, "of both ranks' images"
