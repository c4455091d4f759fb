"""CIFAR-10 as published and as JPEG files: found, decoded right, named honestly, others refused."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.train.data.raw_files import (
    cifar_batches,
    cifar_pickles,
    cifar_pictures,
    publish,
    write_tar,
    write_tree,
)
from train.data.dataset import Dataset
from train.data.registry import DatasetFiles
from train.data.sources import cifar10
from train.data.sources.cifar10 import CLASSES, find
from train.errors import DataError

ARCHIVE, JPEG = "cifar-10-python.tar.gz", "cifar10-imagefolder.tar.xz"
SHARED = Path(
    os.environ.get("HOROSCALE_TEST_DATA") or Path(__file__).resolve().parents[5] / "shared" / "data"
)
needs_pictures = pytest.mark.skipif(
    not (SHARED / JPEG).exists(),
    reason=f"{JPEG} is not there; name its folder by HOROSCALE_TEST_DATA",
)


def decoded(root: Path) -> Dataset:
    (source,) = find(root)
    return source.decode()


@pytest.mark.parametrize("folder", [".", "cifar10"])
def test_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """Against the planes of the batches, pixel by pixel."""
    (tmp_path / folder).mkdir(exist_ok=True)
    archive = write_tar(tmp_path / folder / ARCHIVE, cifar_pickles(4))
    publish(monkeypatch, "cifar10", archive)
    # the published form goes first
    write_tree(tmp_path / "cifar10", cifar_pictures((2, 1)))
    data, batches = decoded(tmp_path), cifar_batches(4)
    assert (data.name, data.classes) == ("CIFAR-10", CLASSES)
    assert data.train_x.shape == (20, 32, 32, 3)
    row = batches["data_batch_2"][b"data"][1]
    for y, x, colour in ((0, 0, 0), (3, 7, 1), (31, 30, 2)):
        assert data.train_x[5, y, x, colour] == row[1024 * colour + 32 * y + x]
    assert data.train_y[5] == batches["data_batch_2"][b"labels"][1]
    assert data.validation_y.tolist() == batches["test_batch"][b"labels"]


def test_another_archive_is_kept_and_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pickles could run anything."""
    archive = write_tar(tmp_path / ARCHIVE, cifar_pickles(4))
    monkeypatch.setattr("pickle.load", pytest.fail)
    monkeypatch.setattr(tarfile, "open", pytest.fail)
    with pytest.raises(DataError, match="truncated or altered"):
        decoded(tmp_path)
    assert archive.exists()


def test_pictures_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = cifar_pictures((3, 2))
    write_tree(tmp_path / "cifar10", files)
    with pytest.raises(DataError, match="other images than the repository") as caught:
        decoded(tmp_path)
    found = str(caught.value).split("fingerprint ")[1].split()[0]
    monkeypatch.setattr(cifar10, "JPEG_FINGERPRINT", found)
    data = decoded(tmp_path)
    assert (data.name, data.classes) == ("CIFAR-10 (JPEG)", CLASSES)
    places = [("train", data.train_x, data.train_y), ("test", data.validation_x, data.validation_y)]
    for part, images, labels in places:
        names = sorted(name for name in files if name.startswith(part))
        assert len(images) == len(names)
        assert labels.tolist() == [CLASSES.index(name.split("/")[-2]) for name in names]
        for name, image in zip(names, images, strict=True):
            with Image.open(io.BytesIO(files[name])) as found:
                assert np.array_equal(image, np.asarray(found))


def test_what_was_downloaded_and_prepared_is_found_without_its_raw_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may delete the raw files to save quota."""
    publish(monkeypatch, "cifar10", write_tar(tmp_path / ARCHIVE, cifar_pickles(4)))
    root = tmp_path / "data"
    files = DatasetFiles("cifar10", root)
    made = files.prepare()
    (root / "cifar10" / ARCHIVE).unlink()
    assert files.prepare() == made
    assert len(files.load().train_y) == 20


@pytest.mark.slow
@needs_pictures
def test_real_pictures(tmp_path: Path) -> None:
    """The fingerprint of 494 published records."""
    with tarfile.open(SHARED / JPEG) as archive:
        archive.extractall(tmp_path / "cifar10")
    data = DatasetFiles("cifar10", tmp_path).load()
    assert data.name == "CIFAR-10 (JPEG)"
    assert np.bincount(data.train_y).tolist() == [5000] * 10
    assert np.bincount(data.validation_y).tolist() == [1000] * 10
    # mean and deviation per channel as published for CIFAR-10's training images, within what
    # JPEG changes: 0.4914 0.4822 0.4465 and 0.2470 0.2435 0.2616
    pixels = data.train_x[::5] / np.float32(255)
    assert np.allclose(pixels.mean((0, 1, 2)), [0.4914, 0.4822, 0.4465], atol=0.01)
    assert np.allclose(pixels.std((0, 1, 2)), [0.2470, 0.2435, 0.2616], atol=0.01)
