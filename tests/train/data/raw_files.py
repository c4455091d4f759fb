"""Makers of small raw files: archives, IDX, pickled batches, pictures."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from train.data.sources.cifar10 import CLASSES
from train.data.sources.download import PUBLISHED, Remote, sha256_of

IDX = (
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
)  # fmt: skip


def picture(path: Path, size: tuple[int, int] = (20, 10), mode: str = "RGB", seed: int = 0) -> Path:
    """A picture file of random pixels; its format is its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.frombytes("RGB", size, noise(3 * size[0] * size[1], seed)).convert(mode).save(path)
    return path


def class_folders(folder: Path, counts: Mapping[str, int]) -> Path:
    """``folder``/<class>/<number>.png, ``counts[class]`` of them, all different."""
    for number, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            picture(folder / name / f"{i:03d}.png", seed=100 * number + i)
    return folder


def noise(count: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).tobytes()


def idx(array: np.ndarray) -> bytes:
    dims = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + dims + array.astype(np.uint8).tobytes()


def idx_files(folder: Path, train: int, test: int) -> dict[str, np.ndarray]:
    """The four packed files of a small MNIST, and what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for images, labels, n in ((*IDX[:2], train), (*IDX[2:], test)):
        made[images] = np.frombuffer(noise(n * 784, n), np.uint8).reshape(n, 28, 28)
        made[labels] = (np.arange(n) % 10).astype(np.uint8)
    for name, array in made.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return made


def batch(n: int, seed: int) -> dict[bytes, object]:
    """A CIFAR-10 batch as Python 2 wrote it: keys are bytes."""
    data = np.frombuffer(noise(n * 3072, seed), np.uint8).reshape(n, 3072)
    return {b"data": data, b"labels": [(seed + i) % 10 for i in range(n)]}


def cifar_batches(n: int) -> dict[str, dict[bytes, object]]:
    """Five training batches and a test batch of n images each."""
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return {name: batch(n, seed) for seed, name in enumerate(names)}


def cifar_pickles(n: int) -> dict[str, bytes]:
    made = cifar_batches(n)
    return {
        f"cifar-10-batches-py/{name}": pickle.dumps(value, protocol=2)
        for name, value in made.items()
    }


def cifar_pictures(per_class: tuple[int, int]) -> dict[str, bytes]:
    """train/<class>/<n> and test/<class>/<n> as files."""
    made = {}
    for part, count in zip(("train", "test"), per_class, strict=True):
        for number, name in enumerate(CLASSES):
            for i in range(count):
                out = io.BytesIO()
                pixels = noise(3072, 1000 * number + i + (500 if part == "test" else 0))
                Image.frombytes("RGB", (32, 32), pixels).save(out, "jpeg")
                made[f"{part}/{name}/{i:04d}.jpg"] = out.getvalue()
    return made


def write_tree(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def published(path: Path) -> Remote:
    """``path`` as if somebody had published it, at its own address."""
    unpacked = path.name.endswith("-ubyte.gz")
    return Remote(path.name, path.as_uri(), sha256_of(path, unpacked=unpacked), unpacked)


def publish(monkeypatch: pytest.MonkeyPatch, dataset: str, *files: Path) -> Remote:
    """From now on these are the published files of a data set; the first of them."""
    remotes = tuple(map(published, files))
    monkeypatch.setitem(PUBLISHED, dataset, remotes)
    return remotes[0]
