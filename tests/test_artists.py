"""The artists' experiment, small: ResNet-50 on a folder of paintings as people keep them, on two
ranks, with what each class got in the record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import classification_report

from tests.sweeps import make_bench
from tests.train.data.paintings import KINDS, ORIENTATION, paint_folder
from train.data.sources.images import decode_image
from train.record.run import Classification

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


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return paint_folder(tmp_path / "Great Artists", COUNTS)


def test_the_folder_is_as_mixed_as_it_says(pictures: Path) -> None:
    modes, turned = set(), 0
    for path in pictures.rglob("*.*"):
        with Image.open(path) as image:
            modes.add(image.mode)
            if image.getexif().get(ORIENTATION, 1) != 1:
                turned += 1
                assert decode_image(path).size == image.size[::-1]
    assert modes == {mode for mode, _ in KINDS} - {"turned"}
    assert turned == sum(count // len(KINDS) for count in COUNTS.values())


@pytest.mark.ranks2
@pytest.mark.slow
def test_each_class_of_a_folder_is_in_the_record(
    pictures: Path, tmp_path: Path, data_root: Path
) -> None:
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
    scores_are_sklearns(found)


def scores_are_sklearns(found: Classification) -> None:
    """The matrix as labels and predictions, one pair per image."""
    matrix = np.array(found.confusion)
    true, predicted = (
        np.repeat(places, matrix.ravel()) for places in np.indices(matrix.shape).reshape(2, -1)
    )
    report = classification_report(
        true, predicted, labels=range(len(matrix)), output_dict=True, zero_division=np.nan
    )
    for place, score in enumerate(found.classes):
        theirs = report[str(place)]
        for ours, name in ((score.precision, "precision"), (score.recall, "recall"),
                           (score.f1, "f1-score"), (score.support, "support")):  # fmt: skip
            expected = np.nan if ours is None else ours
            assert theirs[name] == pytest.approx(expected, abs=1e-12, nan_ok=True), (place, name)
