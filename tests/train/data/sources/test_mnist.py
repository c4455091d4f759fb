"""MNIST and Fashion-MNIST as IDX files and as .npz; damaged ones are told."""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.train.data.raw_files import idx, idx_files, noise, published
from train.config.datasets import DATASETS, DatasetFacts
from train.data.dataset import Dataset
from train.data.registry import prepare
from train.data.sources.download import Remote
from train.data.sources.mnist import FASHION, MNIST, Family, find, read_idx
from train.data.sources.published import REMOTES
from train.errors import DataError

FILES = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip


def as_published(folder: Path) -> list[Remote]:
    return [published(folder / f"{name}.gz") for name in FILES]


def decoded(family: Family, root: Path, remotes: Sequence[Remote] = REMOTES["mnist"]) -> Dataset:
    source = find(family, root, remotes)
    assert source is not None
    return source.decode()


@pytest.mark.parametrize("family", [MNIST, FASHION])
def test_packed_files(tmp_path: Path, family: Family) -> None:
    folder = tmp_path / family.slug
    made = idx_files(folder, 30, 20, packed=True)
    data = decoded(family, tmp_path, as_published(folder))
    assert (data.name, data.classes) == (family.name, family.classes)
    assert np.array_equal(data.train_x[..., 0], made[FILES[0]])
    assert np.array_equal(data.train_y, made[FILES[1]])
    assert np.array_equal(data.validation_x[..., 0], made[FILES[2]])
    assert np.array_equal(data.validation_y, made[FILES[3]])


@pytest.mark.parametrize(
    "folder", ["fashion_mnist", "fashion_mnist/raw", "FashionMNIST/raw",
               "fashion_mnist/FashionMNIST/raw"],
)  # fmt: skip
def test_unpacked_files_in_any_usual_folder(tmp_path: Path, folder: str) -> None:
    idx_files(tmp_path / "server", 30, 20, packed=True)
    idx_files(tmp_path / folder, 30, 20, packed=False)
    assert len(decoded(FASHION, tmp_path, as_published(tmp_path / "server")).train_y) == 30
    assert find(MNIST, tmp_path, REMOTES["mnist"]) is None


def test_a_truncated_file_is_told_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    idx_files(folder, 30, 20, packed=True)
    remotes = as_published(folder)
    file = folder / f"{FILES[2]}.gz"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz is truncated or damaged"):
        decoded(MNIST, tmp_path, remotes)
    assert file.exists()


@pytest.mark.parametrize("packed", [True, False])
def test_other_data_than_were_published_are_refused(tmp_path: Path, packed: bool) -> None:
    idx_files(tmp_path / "server", 30, 20, packed=True)
    remotes = as_published(tmp_path / "server")
    made = idx_files(tmp_path / "mnist", 30, 20, packed=packed)
    altered = made[FILES[1]].copy()
    altered[3] = (altered[3] + 1) % 10
    file = tmp_path / "mnist" / (f"{FILES[1]}.gz" if packed else FILES[1])
    file.write_bytes(gzip.compress(idx(altered)) if packed else idx(altered))
    with pytest.raises(DataError, match=f"holds other data than .* expected {remotes[1].inner}"):
        decoded(MNIST, tmp_path, remotes)
    assert file.exists()


def test_files_compressed_again_are_the_published_data(tmp_path: Path) -> None:
    """Without the name and the date in its header, as `gzip -n` makes it for Debian's package, a
    file is shorter and has another checksum."""
    folder = tmp_path / "usr" / "fashion-mnist"
    made = idx_files(folder, 30, 20, packed=True)
    for name in FILES:
        buffer = io.BytesIO()
        with gzip.GzipFile(name, "wb", fileobj=buffer, mtime=1504176606) as out:
            out.write(idx(made[name]))
        (tmp_path / f"{name}.gz").write_bytes(buffer.getvalue())
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(made[name]), mtime=0))
    remotes = as_published(tmp_path)
    sizes = [remote.size - (folder / remote.name).stat().st_size for remote in remotes]
    assert sizes == [len(name) + 1 for name in FILES]
    family = replace(FASHION, system=folder)
    assert np.array_equal(decoded(family, tmp_path, remotes).train_x[..., 0], made[FILES[0]])
    # a folder with data of one's own comes first, in any of its forms
    save_npz(tmp_path / "fashion_mnist.npz", **small_npz())
    assert len(decoded(family, tmp_path, remotes).train_y) == 3


SYSTEM = FASHION.system


@pytest.mark.skipif(
    SYSTEM is None or not SYSTEM.is_dir(), reason="Debian's dataset-fashion-mnist is not installed"
)
def test_the_systems_package_is_found_and_is_as_published(tmp_path: Path) -> None:
    data = decoded(FASHION, tmp_path, REMOTES["fashion_mnist"])
    assert np.bincount(data.train_y).tolist() == [6000] * 10
    assert np.bincount(data.validation_y).tolist() == [1000] * 10


def test_three_of_four_files_are_not_a_set(tmp_path: Path) -> None:
    idx_files(tmp_path / "mnist", 30, 20, packed=True)
    (tmp_path / "mnist" / f"{FILES[3]}.gz").unlink()
    assert find(MNIST, tmp_path, REMOTES["mnist"]) is None


def save_npz(path: Path, **arrays: np.ndarray) -> None:
    np.savez_compressed(path, **arrays)


def small_npz() -> dict[str, np.ndarray]:
    pixels = np.frombuffer(noise(784 * 5), np.uint8).reshape(5, 28, 28)
    return {
        "x_train": pixels[:3],
        "y_train": np.array([0, 9, 4], np.uint8),
        "x_test": pixels[3:],
        "y_test": np.array([1, 2], np.uint8),
    }


def test_npz(tmp_path: Path) -> None:
    save_npz(tmp_path / "fashion_mnist.npz", **small_npz())
    data = decoded(FASHION, tmp_path)
    assert np.array_equal(data.train_x[..., 0], small_npz()["x_train"])
    assert data.train_y.tolist() == [0, 9, 4]
    assert data.validation_y.tolist() == [1, 2]


def test_npz_of_keras_is_compared_with_its_checksum(tmp_path: Path) -> None:
    save_npz(tmp_path / "mnist.npz", **small_npz())
    with pytest.raises(DataError, match=r"mnist.npz is truncated or altered"):
        decoded(MNIST, tmp_path)


def test_npz_with_objects_is_not_unpickled(tmp_path: Path) -> None:
    arrays = small_npz() | {"y_test": np.array([{"a": 1}, None], object)}
    save_npz(tmp_path / "fashion_mnist.npz", **arrays)
    with pytest.raises(DataError, match="Object arrays cannot be loaded"):
        decoded(FASHION, tmp_path)


@pytest.mark.parametrize("keep", [0.2, 0.9])
def test_truncated_npz_is_told(tmp_path: Path, keep: float) -> None:
    file = tmp_path / "fashion_mnist.npz"
    save_npz(file, **small_npz())
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * keep)])
    with pytest.raises(DataError, match="truncated or damaged"):
        decoded(FASHION, tmp_path)


def test_npz_with_other_names_is_told(tmp_path: Path) -> None:
    save_npz(tmp_path / "fashion_mnist.npz", images=np.zeros((1, 28, 28), np.uint8))
    with pytest.raises(DataError, match="expected x_train, y_train, x_test, y_test"):
        decoded(FASHION, tmp_path)


ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize("pack", [gzip.compress, lambda content: content])
def test_idx_round_trip(tmp_path: Path, pack: object) -> None:
    (tmp_path / "x").write_bytes(pack(idx(ARRAY)))  # type: ignore[operator]
    assert np.array_equal(read_idx(tmp_path / "x", 3), ARRAY)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08", "starts with 00 00 08, expected 00 00 08 03"),
        (b"\x00\x00\x0d\x03" + idx(ARRAY)[4:], "starts with 00 00 0d 03"),
        (idx(ARRAY[0]), "starts with 00 00 08 02"),
        (b"<html>not found</html>", "starts with 3c 68 74 6d"),
        (idx(ARRAY)[:10], "truncated or altered"),
        (idx(ARRAY)[:-1], "39 bytes found, 40 expected"),
        (idx(ARRAY) + b"\x00", "41 bytes found, 40 expected"),
    ],
)
def test_idx_errors(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(DataError, match=told):
        read_idx(tmp_path / "x", 3)


def test_idx_in_a_truncated_gzip(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(idx(ARRAY))[:-9])
    with pytest.raises(DataError, match="truncated or damaged"):
        read_idx(tmp_path / "x.gz", 3)


def test_labels_out_of_range_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    idx_files(folder, 30, 20, packed=False)
    (folder / FILES[1]).write_bytes(idx(np.full(30, 11, np.uint8)))
    remotes = [published(folder / name) for name in FILES]
    with pytest.raises(DataError, match=r"training labels are 11..11, expected 0..9"):
        decoded(MNIST, tmp_path, remotes)


def test_downloaded_and_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "mnist", DatasetFacts(30, 20, (28, 28, 1), 10))
    idx_files(tmp_path / "server", 30, 20, packed=True)
    remotes = as_published(tmp_path / "server")
    made = prepare("mnist", None, tmp_path / "data", remotes={"mnist": remotes})
    assert np.load(made / "train_x.npy").shape == (30, 28, 28, 1)
    assert sorted(f.name for f in (tmp_path / "data" / "mnist").iterdir()) == sorted(
        remote.name for remote in remotes
    )


def test_npz_in_memory_reads_as_on_disk() -> None:
    """Guard for the maker above: what it writes is what Keras' files hold."""
    out = io.BytesIO()
    np.savez_compressed(out, **small_npz())
    out.seek(0)
    assert set(np.load(out).files) == {"x_train", "y_train", "x_test", "y_test"}
