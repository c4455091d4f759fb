"""CIFAR-10 in each of its forms: found, decoded right, named honestly; wrong ones refused."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.train.data.raw_files import (
    cifar_batches,
    cifar_pickles,
    cifar_pictures,
    noise,
    published,
    write_tar,
    write_tree,
)
from train.config.datasets import DATASETS, DatasetFacts
from train.data.dataset import Dataset
from train.data.registry import load, prepare
from train.data.sampling import for_tuning
from train.data.sources.cifar10 import CLASSES, find
from train.data.sources.download import Remote
from train.errors import DataError

ARCHIVE = "cifar-10-python.tar.gz"
NOWHERE = Remote(ARCHIVE, ("file:///nowhere",), 1, "0" * 64)
SHARED = Path(
    os.environ.get("HOROSCALE_TEST_DATA") or Path(__file__).resolve().parents[5] / "shared" / "data"
)


def decoded(root: Path, remote: Remote = NOWHERE) -> Dataset:
    source = find(root, [remote])
    assert source is not None
    return source.decode()


def assert_is_pickles(data: Dataset, n: int) -> None:
    """Against the planes of the batches, pixel by pixel."""
    assert data.name == "CIFAR-10"
    assert data.classes == CLASSES
    assert data.train_x.shape == (5 * n, 32, 32, 3)
    batches = cifar_batches(n)
    row = batches["data_batch_2"][b"data"][1]
    place = n + 1
    for y, x, colour in ((0, 0, 0), (3, 7, 1), (31, 30, 2)):
        assert data.train_x[place, y, x, colour] == row[1024 * colour + 32 * y + x]
    assert data.train_y[place] == batches["data_batch_2"][b"labels"][1]
    assert data.validation_y.tolist() == batches["test_batch"][b"labels"]


def test_extracted_pickles(tmp_path: Path) -> None:
    write_tree(tmp_path, cifar_pickles(4))
    assert_is_pickles(decoded(tmp_path), 4)


@pytest.mark.parametrize("folder", [".", "cifar10"])
def test_archive_of_pickles(tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    archive = write_tar(tmp_path / folder / ARCHIVE, cifar_pickles(4))
    assert_is_pickles(decoded(tmp_path, published(archive)), 4)


def test_archive_with_another_checksum_is_refused_and_kept(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / ARCHIVE, cifar_pickles(4))
    with pytest.raises(DataError, match="truncated or altered"):
        decoded(tmp_path, NOWHERE)
    assert archive.exists()


def test_malicious_batch_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(mark),)

    files = cifar_pickles(4)
    files["cifar-10-batches-py/data_batch_3"] = pickle.dumps({b"data": Evil()})
    archive = write_tar(tmp_path / ARCHIVE, files)
    with pytest.raises(DataError, match=r"data_batch_3 is refused.*mkdir"):
        decoded(tmp_path, published(archive))
    assert not mark.exists()


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        {b"data": np.zeros((4, 3072), np.uint8)},
        {b"data": np.zeros((4, 3072), np.float32), b"labels": [0] * 4},
        {b"data": np.zeros((4, 3071), np.uint8), b"labels": [0] * 4},
        {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2, 10]},
    ],
)
def test_what_is_no_batch_is_told(tmp_path: Path, value: object) -> None:
    files = cifar_pickles(4)
    files["cifar-10-batches-py/test_batch"] = pickle.dumps(value)
    write_tree(tmp_path, files)
    with pytest.raises(DataError, match="test_batch is no CIFAR-10 batch"):
        decoded(tmp_path)


def test_labels_must_be_as_many_as_images(tmp_path: Path) -> None:
    files = cifar_pickles(4)
    value = {b"data": np.zeros((4, 3072), np.uint8), b"labels": [0, 1, 2]}
    files["cifar-10-batches-py/test_batch"] = pickle.dumps(value)
    write_tree(tmp_path, files)
    with pytest.raises(DataError, match="expected one integer for each image"):
        decoded(tmp_path)


def test_archive_without_a_batch_is_told(tmp_path: Path) -> None:
    files = cifar_pickles(4)
    del files["cifar-10-batches-py/data_batch_5"]
    archive = write_tar(tmp_path / ARCHIVE, files)
    with pytest.raises(DataError, match="data_batch_5 not found in it"):
        decoded(tmp_path, published(archive))


def assert_is_pictures(data: Dataset, files: Mapping[str, bytes]) -> None:
    assert data.classes == CLASSES
    places = [("train", data.train_x, data.train_y), ("test", data.validation_x, data.validation_y)]
    for part, images, labels in places:
        names = sorted(name for name in files if f"{part}/" in name)
        assert len(images) == len(names)
        assert labels.tolist() == [CLASSES.index(name.split("/")[-2]) for name in names]
        for name, image in zip(names, images, strict=True):
            with Image.open(io.BytesIO(files[name])) as found:
                assert np.array_equal(image, np.asarray(found))


@pytest.mark.parametrize("top", [".", "cifar10", "cifar-10", "CIFAR-10-images"])
def test_folder_of_pictures(tmp_path: Path, top: str) -> None:
    files = cifar_pictures((3, 2))
    write_tree(tmp_path / top, files)
    data = decoded(tmp_path)
    assert data.name == "CIFAR-10 (PNG)"
    assert_is_pictures(data, files)


@pytest.mark.parametrize(("name", "mode"), [("cifar10-imagefolder.tar.xz", "w:xz"),
                                            ("cifar10.tgz", "w:gz")])  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "./", "CIFAR-10-images/"])
def test_archive_of_pictures(tmp_path: Path, name: str, mode: str, prefix: str) -> None:
    files = {f"{prefix}{key}": value for key, value in cifar_pictures((3, 2), "jpg").items()}
    extra = {f"{prefix}README.md": b"x", f"{prefix}train/cat/._0001.jpg": b"a Mac was here"}
    shuffled = dict(sorted({**files, **extra}.items(), key=lambda item: hash(item[1])))
    write_tar(tmp_path / name, shuffled, mode)
    data = decoded(tmp_path)
    assert data.name == "CIFAR-10 (JPEG)"
    assert_is_pictures(data, files)


def test_publishers_form_goes_first(tmp_path: Path) -> None:
    write_tree(tmp_path / "cifar10", cifar_pictures((2, 1)))
    write_tree(tmp_path, cifar_pickles(4))
    assert decoded(tmp_path).name == "CIFAR-10"


def test_other_classes_are_told(tmp_path: Path) -> None:
    files = cifar_pictures((2, 1))
    files = {name.replace("/truck/", "/lorry/"): content for name, content in files.items()}
    write_tar(tmp_path / "cifar10.tar.gz", files)
    with pytest.raises(DataError, match="missing test/truck, train/truck; unexpected test/lorry"):
        decoded(tmp_path)


def test_other_sizes_and_damage_are_told_together(tmp_path: Path) -> None:
    files = cifar_pictures((2, 1))
    out = io.BytesIO()
    Image.frombytes("RGB", (33, 32), noise(3 * 33 * 32)).save(out, "png")
    files["train/cat/0000.png"] = out.getvalue()
    files["test/dog/0000.png"] = files["test/dog/0000.png"][:500]
    write_tree(tmp_path / "cifar10", files)
    with pytest.raises(DataError, match="2 of 30 images cannot be decoded") as caught:
        decoded(tmp_path)
    assert "cat/0000.png: 33 x 32 pixels, not 32 x 32" in str(caught.value)
    assert "dog/0000.png: " in str(caught.value)


def test_nothing_is_found_in_other_folders(tmp_path: Path) -> None:
    write_tree(tmp_path, {"train/a/1.png": b"", "test/a/1.png": b"", "cifar10/notes.txt": b""})
    assert find(tmp_path, [NOWHERE]) is None


def test_counts_are_checked(tmp_path: Path) -> None:
    write_tree(tmp_path, cifar_pickles(4))
    with pytest.raises(DataError, match=r"found 20 training and 4 .*expected 50,000 and 10,000"):
        prepare("cifar10", None, tmp_path)
    assert not list(tmp_path.glob("prepared/*"))


def test_downloaded_and_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "cifar10", DatasetFacts(20, 4, (32, 32, 3), 10))
    archive = write_tar(tmp_path / ARCHIVE, cifar_pickles(4))
    root = tmp_path / "data"
    made = prepare("cifar10", None, root, remotes={"cifar10": [published(archive)]})
    assert (root / ARCHIVE).exists()
    # a user may delete the raw files to save quota: what was made from them is still found
    (root / ARCHIVE).unlink()
    assert prepare("cifar10", None, root, remotes={"cifar10": [published(archive)]}) == made
    assert_is_pickles(load("cifar10", None, root), 4)


@pytest.fixture
def two_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Prepared forms of two different sets of files that are gone, the published one second."""
    monkeypatch.setitem(DATASETS, "cifar10", DatasetFacts(20, 4, (32, 32, 3), 10))
    made = []
    for root, files in ((tmp_path / "own", cifar_pickles(4)), (tmp_path / "theirs", changed(4))):
        write_tree(root, files)
        made.append(prepare("cifar10", None, root, store_root=tmp_path / "store"))
    return made[0], made[1]


def changed(n: int) -> dict[str, bytes]:
    other = {name: dict(value) for name, value in cifar_batches(n).items()}
    other["test_batch"][b"labels"] = [9] * n
    return {f"cifar-10-batches-py/{k}": pickle.dumps(v, protocol=2) for k, v in other.items()}


def test_an_earlier_form_of_files_that_are_gone_is_told(
    two_forms: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, other = two_forms
    shutil.rmtree(other)
    empty = tmp_path / "empty"
    empty.mkdir()
    capsys.readouterr()
    data = load("cifar10", None, empty, old.parent)
    assert old.name in data.remark and "the raw files of cifar10 are gone" in data.remark
    assert data.remark in capsys.readouterr().err
    assert for_tuning(data).remark == data.remark
    # with its files there, it is the wanted one
    assert load("cifar10", None, tmp_path / "own", old.parent).remark == ""


def test_of_two_different_earlier_forms_none_is_guessed(
    two_forms: tuple[Path, Path], tmp_path: Path
) -> None:
    store = two_forms[0].parent
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match="several prepared forms of different images") as caught:
        prepare("cifar10", None, empty, store_root=store)
    assert all(str(made) in str(caught.value) for made in two_forms)
    # what was compared with the published checksum needs no guess
    archive = write_tar(tmp_path / ARCHIVE, cifar_pickles(4))
    remotes = {"cifar10": [published(archive)]}
    wanted = prepare("cifar10", None, tmp_path, store_root=store, remotes=remotes)
    archive.unlink()
    assert prepare("cifar10", None, empty, store_root=store, remotes=remotes) == wanted


@pytest.mark.skipif(
    not (SHARED / "cifar10-imagefolder.tar.xz").exists(),
    reason="cifar10-imagefolder.tar.xz is not there; name its folder by HOROSCALE_TEST_DATA",
)
def test_real_pictures(tmp_path: Path) -> None:
    (tmp_path / "cifar10-imagefolder.tar.xz").symlink_to(SHARED / "cifar10-imagefolder.tar.xz")
    data = load("cifar10", None, tmp_path)
    assert data.name == "CIFAR-10 (JPEG)"
    assert np.bincount(data.train_y).tolist() == [5000] * 10
    assert np.bincount(data.validation_y).tolist() == [1000] * 10
    # mean and deviation per channel as published for CIFAR-10's training images, within what
    # JPEG changes: 0.4914 0.4822 0.4465 and 0.2470 0.2435 0.2616
    pixels = data.train_x[::5] / np.float32(255)
    assert np.allclose(pixels.mean((0, 1, 2)), [0.4914, 0.4822, 0.4465], atol=0.01)
    assert np.allclose(pixels.std((0, 1, 2)), [0.2470, 0.2435, 0.2616], atol=0.01)
