"""arrays:FILE.npz: what Keras' own files hold is read, all else is refused in one sentence."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import config
from tests.train.data.raw_files import noise
from train.data.registry import DatasetFiles
from train.data.sources.download import sha256_of
from train.errors import DataError


def arrays(shape: tuple[int, ...] = (6, 5), n: int = 40, held_out: int = 10) -> dict[str, Any]:
    made = {}
    for part, count in (("train", n), ("test", held_out)):
        pixels = np.frombuffer(noise(count * int(np.prod(shape)), count), np.uint8)
        made[f"x_{part}"] = pixels.reshape(count, *shape)
        made[f"y_{part}"] = np.arange(count, dtype=np.uint8) % 4
    return made


def save(file: Path, made: dict[str, Any]) -> str:
    """Its name in a config."""
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **made)
    return f"arrays:{file.name}@{sha256_of(file)}"


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 1), (6, 5, 4)])
@pytest.mark.parametrize("labels", ["n", "n x 1"])
def test_arrays_as_keras_has_them(tmp_path: Path, shape: tuple[int, ...], labels: str) -> None:
    made = arrays(shape)
    given = {k: v[:, None] if labels != "n" and k[0] == "y" else v for k, v in made.items()}
    name = save(tmp_path / "My Birds.npz", given)
    data = DatasetFiles(name, tmp_path).load()
    assert (data.name, data.classes) == ("My Birds", ("0", "1", "2", "3"))
    assert np.array_equal(data.train_x.reshape(made["x_train"].shape), made["x_train"])
    assert np.array_equal(data.validation_x.reshape(made["x_test"].shape), made["x_test"])
    assert np.array_equal(data.train_y, made["y_train"])
    assert np.array_equal(data.validation_y, made["y_test"])
    assert data.train_x.shape == (40, *(*shape, 1)[:3])
    assert DatasetFiles(name.split("@")[0], tmp_path).prepare().name.startswith("arrays_my_birds-")


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "a.npz"
    first = save(file, arrays())
    made = DatasetFiles(first, tmp_path).prepare()
    second = save(file, arrays(n=44))
    assert DatasetFiles(first, tmp_path).prepare() == made, "it was prepared of the named content"
    assert DatasetFiles(second, tmp_path).prepare() != made
    for where in (tmp_path / "other", tmp_path / "empty"):
        where.mkdir()
    save(where.parent / "other" / "a.npz", arrays(n=48))
    with pytest.raises(DataError, match=r"another file than .* run make sweep"):
        DatasetFiles(first, tmp_path / "other").prepare()
    with pytest.raises(DataError, match=r"no file .*empty/a\.npz: .* DATA=DIR"):
        DatasetFiles(first, tmp_path / "empty").prepare()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None, "y_test": None}, "x_test, y_test not found, expected x_train, y_train"),
        ({"x_train": np.zeros((40, 6, 5), np.float32)}, r"x_train: found float32 \[40, 6, 5\]"),
        ({"x_train": np.zeros(40, np.uint8)}, r"expected \[n, h, w\] or \[n, h, w, channels\]"),
        (arrays((3, 6, 5)), r"channels\]: save x_train\.transpose\(0, 2, 3, 1\)"),
        ({"x_test": np.zeros((0, 6, 5), np.uint8)}, "x_test: found .* at least one image"),
        ({"y_train": np.zeros(40)}, r"y_train: found float64 \[40\], expected integers"),
        ({"y_train": np.zeros((40, 4), int)}, "expected one label for each of 40 images"),
        ({"y_test": np.array(1)}, r"y_test: found int64 \[\], expected one label"),
        ({"x_test": np.zeros((10, 5, 6), np.uint8)}, r"are \[6, 5\], of x_test \[5, 6\]"),
        ({"y_train": np.arange(40) % 4 + 1}, "labels 1 to 4: expected at least two, 0, 1, ..."),
        ({"y_train": np.zeros(40, int)}, "1 classes found"),
        (
            {"y_test": np.full(10, 4)},
            "y_test: labels 4 to 4 found: expected those of y_train, 0 to",
        ),
        ({"y_test": np.array([{"a": 1}] * 10, object)}, "Object arrays cannot be loaded"),
    ],
)
def test_what_is_no_data_set(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    made = {k: v for k, v in (arrays() | changes).items() if v is not None}
    with pytest.raises(DataError, match=rf"a\.npz.*{message}") as caught:
        DatasetFiles(save(tmp_path / "a.npz", made), tmp_path).prepare()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["truncated", "text", "pickle", "npy", "altered", "bytes"])
def test_files_that_are_no_arrays(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "a.npz"
    save(file, arrays())
    content = file.read_bytes()
    middle = len(content) // 4
    altered = content[:middle] + bytes(3) + content[middle + 3 :]
    np.save(tmp_path / "a.npy", np.zeros(3))
    with zipfile.ZipFile(tmp_path / "bytes.zip", "w") as members:
        for name in arrays():
            members.writestr(f"{name}.npy", b"no array")
    contents = {
        "truncated": content[:-100], "text": b"label,pixel", "pickle": pickle.dumps({"x_train": 1}),
        "npy": (tmp_path / "a.npy").read_bytes(), "altered": altered,
        "bytes": (tmp_path / "bytes.zip").read_bytes(),
    }  # fmt: skip
    file.write_bytes(contents[kind])
    with pytest.raises(DataError, match=r"read as arrays without objects|x_train: found .S8 \[\]"):
        DatasetFiles("arrays:a.npz", tmp_path).prepare()


def test_a_cell_has_the_name_of_its_file() -> None:
    sha256 = "0" * 64
    cell = config(dataset=f"arrays:deep/My-Birds v2.npz@{sha256}", model="cnn")
    assert cell.cell_id().startswith("my_birds_v2-cnn-")
    for wrong in ("arrays:", "arrays:birds.csv", "arrays:birds.npz", f"arrays:.npy@{sha256}"):
        with pytest.raises(ValueError, match="expected arrays:"):
            config(dataset=wrong)
