"""A folder of the user's own: split, order, errors that name the file or the class."""

from __future__ import annotations

import os
import random
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.train.data.raw_files import class_folders, picture
from train.data.dataset import Dataset
from train.data.registry import DatasetFiles
from train.data.sources.image_folder import find
from train.errors import DataError


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return class_folders(tmp_path / "My Pets", {"cat": 10, "dog": 5, "eel": 2})


def decoded(folder: Path, size: int = 16) -> Dataset:
    return find(str(folder), size, Path("/nowhere")).decode()


def test_a_fifth_of_each_class_is_held_out(pets: Path) -> None:
    data = decoded(pets)
    assert (data.name, data.classes) == ("My Pets", ("cat", "dog", "eel"))
    assert np.bincount(data.train_y).tolist() == [8, 4, 1]
    assert np.bincount(data.validation_y).tolist() == [2, 1, 1]
    assert data.train_x.shape == (13, 16, 16, 3)
    expected = {
        np.asarray(Image.open(path).resize((16, 16), Image.Resampling.BICUBIC)).tobytes(): number
        for number, name in enumerate(("cat", "dog", "eel"))
        for path in (pets / name).iterdir()
    }
    pairs = [*zip(data.train_x, data.train_y, strict=True),
             *zip(data.validation_x, data.validation_y, strict=True)]  # fmt: skip
    assert {image.tobytes(): label for image, label in pairs} == expected


def test_images_are_in_memory_once(pets: Path) -> None:
    """As the check of free memory counts them. Before, the two parts were a second copy."""
    decoded(pets)  # what is loaded for the first one
    tracemalloc.start()
    try:
        data = decoded(pets, 512)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * (data.train_x.nbytes + data.validation_x.nbytes)


def test_result_does_not_depend_on_the_order_of_files(pets: Path, tmp_path: Path) -> None:
    files = list(pets.rglob("*.png"))
    random.Random(1).shuffle(files)
    copy = tmp_path / "copy" / pets.name
    for file in files:
        (copy / file.parent.name).mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy / file.parent.name)
    one, other = find(str(pets), 16, tmp_path), find(str(copy), 16, tmp_path)
    assert one.folder_name == other.folder_name
    assert one.decode().fingerprint == other.decode().fingerprint


@pytest.mark.parametrize("name", ["test", "val", "valid", "validation"])
def test_own_split_is_used(tmp_path: Path, name: str) -> None:
    class_folders(tmp_path / "train", {"a": 3, "b": 1})
    class_folders(tmp_path / name, {"a": 1, "b": 2})
    data = decoded(tmp_path)
    assert data.train_y.tolist() == [0, 0, 0, 1]
    assert data.validation_y.tolist() == [0, 1, 1]


def test_other_files_are_counted(pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (pets / "cat" / "000.png").rename(pets / "cat" / "000.PNG")
    (pets / "cat" / "notes.txt").write_text("x")
    (pets / "README.md").write_text("x")
    (pets / "cat" / ".hidden.png").write_text("no image")
    (pets / ".cache").mkdir()
    assert len(decoded(pets).train_y) == 13
    said = capsys.readouterr().err
    assert "2 entries are left out, which are no images" in said and "e.g. README.md" in said


@pytest.mark.parametrize(
    "name", ["@eaDir", "@tmp", "@Recycle", "#recycle", "#snapshot", "lost+found", "__MACOSX",
             "$RECYCLE.BIN", "RECYCLER", "~snapshot", "@Recently-Snapshot", "@__thumb",
             "System Volume Information", ".snapshot", ".AppleDouble"],
)  # fmt: skip
@pytest.mark.parametrize("parts", [False, True])
def test_what_a_storage_system_keeps_there_is_no_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, parts: bool
) -> None:
    """Seen: thumbnails of a NAS were a class, and images of others. A class #1 stays one."""
    top = tmp_path / "pets"
    folders = [top / part for part in ("train", "test")] if parts else [top]
    for folder in folders:
        class_folders(folder, {"cat": 5, "#1": 3})
    before = find(str(top), 16, tmp_path)
    for folder in (top, *folders, folders[0] / "cat"):
        picture(folder / name / "cat001.jpg" / "SYNOPHOTO_THUMB_M.jpg")
    assert find(str(top), 16, tmp_path).folder_name == before.folder_name, "the same data set"
    data = decoded(top)
    assert data.classes == ("#1", "cat")
    assert (f"e.g. {name}" in capsys.readouterr().err) is not name.startswith(".")


def test_names_of_the_users_own_are_data(tmp_path: Path) -> None:
    """Seen: a class @home and pictures named after an account were left out."""
    class_folders(tmp_path / "posts", {"@home": 5, "away": 3})
    picture(tmp_path / "posts" / "away" / "@user_42.png")
    picture(tmp_path / "posts" / "away" / "@tmp.png")
    data = decoded(tmp_path / "posts")
    assert data.classes == ("@home", "away")
    assert len(data.train_y) + len(data.validation_y) == 10


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"cat": 3, "dog": 1}, "class dog has 1 image"),
        ({"cat": 3, "dog": 0}, "dog holds no image"),
        ({"cat": 3}, r"1 class folders found \(cat\), at least 2 expected"),
        ({}, r"0 class folders found \(none\)"),
        ({"train": 3, "held": 3}, "train looks like a part, not a class"),
        ({"Train": 3, "Test": 3}, "looks like a part, not a class"),
    ],
)
def test_what_is_no_data_set(tmp_path: Path, counts: dict[str, int], told: str) -> None:
    class_folders(tmp_path, counts)
    with pytest.raises(DataError, match=told):
        decoded(tmp_path)


def test_different_classes_in_train_and_test(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", {"a": 1, "b": 1, "c": 1})
    class_folders(tmp_path / "test", {"a": 1, "b": 1, "d": 1})
    with pytest.raises(DataError, match=r"only in .*train: c; only in .*test: d"):
        decoded(tmp_path)


def test_links(pets: Path, tmp_path: Path) -> None:
    (pets / "cat" / "inside.png").symlink_to("000.png")
    assert len(decoded(pets).train_y) == 14  # 11 cats, 2 held out
    outside = picture(tmp_path / "outside.png")
    for target in (outside, pets / "dog", pets / "gone"):
        link = pets / "cat" / "link.png"
        link.symlink_to(target)
        with pytest.raises(DataError, match=f"is a link to {target}, which is no file in {pets}"):
            decoded(pets)
        link.unlink()


def test_name_that_is_not_utf8(pets: Path) -> None:
    Path(os.fsdecode(os.fsencode(pets) + b"/caf\xe9")).mkdir()
    with pytest.raises(DataError, match="not UTF-8"):
        decoded(pets)


def test_relative_path_begins_in_the_data_folder_wherever_a_rank_is_started(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = class_folders(tmp_path / "there" / "My Pets", {"a": 2, "b": 2}).parent
    monkeypatch.chdir(tmp_path)
    assert find("My Pets", 16, root).decode().classes == ("a", "b")
    monkeypatch.setenv("HOME", str(root))
    assert find("~/My Pets", 16, tmp_path).decode().classes == ("a", "b")
    for name in ("My Pets", "~nobody_of_that_name"):
        with pytest.raises(DataError, match=rf"looked for .*/empty/{name}\. Expected"):
            find(name, 16, tmp_path / "empty")


def test_changed_folder_is_prepared_anew(pets: Path, tmp_path: Path) -> None:
    files = DatasetFiles(f"folder:{pets}", tmp_path / "root", 16)
    first = files.prepare()
    assert first.name.startswith("folder_my_pets-")
    assert files.prepare() == first
    assert replace(files, image_size=17).prepare() != first
    picture(pets / "dog" / "005.png", seed=999)
    second = files.prepare()
    assert second != first
    os.utime(pets / "dog" / "005.png", ns=(1, 1))
    assert files.prepare() not in (first, second)
    assert len(files.load().train_y) == 14


def test_default_size_is_64(pets: Path, tmp_path: Path) -> None:
    assert DatasetFiles(f"folder:{pets}", tmp_path / "root").load().train_x.shape[1:] == (64, 64, 3)
