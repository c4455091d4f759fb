"""MNIST and Fashion-MNIST: published files and Debian's package; damaged ones are refused."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.train.data.raw_files import IDX, idx, idx_files, publish
from train.data.dataset import Dataset
from train.data.registry import _FINDERS
from train.data.sources import cifar10
from train.data.sources.mnist import FASHION, MNIST, Family, find
from train.errors import DataError


def decoded(family: Family, root: Path) -> Dataset:
    (source,) = find(replace(family, system=None), root)
    return source.decode()


@pytest.mark.parametrize("family", [MNIST, FASHION])
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: Family) -> None:
    made = idx_files(tmp_path / family.slug, 30, 20)
    publish(monkeypatch, family.slug, *(tmp_path / family.slug / f"{name}.gz" for name in IDX))
    data = decoded(family, tmp_path)
    assert (data.name, data.classes) == (family.name, family.classes)
    assert np.array_equal(data.train_x[..., 0], made[IDX[0]])
    assert np.array_equal(data.train_y, made[IDX[1]])
    assert np.array_equal(data.validation_x[..., 0], made[IDX[2]])
    assert np.array_equal(data.validation_y, made[IDX[3]])
    (tmp_path / family.slug / f"{IDX[3]}.gz").unlink()
    (source,) = find(replace(family, system=None), tmp_path)
    assert source.decode is None, "three of four files are no set"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-100], "truncated or damaged"),
        (lambda content: b"no gzip", "truncated or damaged"),
        (lambda content: content[:5000] + b"\0\1\2" + content[5003:], "truncated or"),
        (lambda content: gzip.compress(gzip.decompress(content) + b"\0"), "truncated or altered"),
    ],
)
def test_a_damaged_file_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage, message: str
) -> None:
    folder = tmp_path / "mnist"
    idx_files(folder, 30, 20)
    publish(monkeypatch, "mnist", *(folder / f"{name}.gz" for name in IDX))
    file = folder / f"{IDX[2]}.gz"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataError, match=f"{file.name} .*({message})"):
        decoded(MNIST, tmp_path)
    assert file.exists()


def test_files_compressed_again_are_the_published_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the name and the date in its header, as `gzip -n` makes it for Debian's package, a
    file is shorter and has another checksum."""
    folder = tmp_path / "usr" / "fashion-mnist"
    made = idx_files(folder, 30, 20)
    files = [folder / f"{name}.gz" for name in IDX]
    publish(monkeypatch, "fashion_mnist", *files)
    for name, file in zip(IDX, files, strict=True):
        file.write_bytes(gzip.compress(idx(made[name]), 1, mtime=0))
    (source,) = find(replace(FASHION, system=folder), tmp_path)
    assert np.array_equal(source.decode().train_x[..., 0], made[IDX[0]])


@pytest.mark.skipif(
    FASHION.system is None or not FASHION.system.is_dir(),
    reason="Debian's dataset-fashion-mnist is not installed",
)
def test_the_systems_package_is_found_and_is_as_published(tmp_path: Path) -> None:
    (source,) = find(FASHION, tmp_path)
    data = source.decode()
    assert np.bincount(data.train_y).tolist() == [6000] * 10
    assert np.bincount(data.validation_y).tolist() == [1000] * 10
    # of 75 published records
    assert data.fingerprint.startswith("a7867a9a6563f687")


def test_names_of_prepared_forms_stay(tmp_path: Path) -> None:
    """What earlier versions prepared of the published files is used on."""
    sources = [*find(MNIST, tmp_path), *find(FASHION, tmp_path), *cifar10.find(tmp_path)]
    assert [source.folder_name for source in [*sources, *_FINDERS["synthetic"](tmp_path)]] == [
        "mnist-6f66c86c2394", "fashion_mnist-7abf1aa9a69a", "cifar10-c30f2fd3baec",
        "cifar10-ed397baac6a0", "synthetic-2bfbff6f2a9e",
    ]  # fmt: skip
