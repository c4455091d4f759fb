"""The prepared form is whole or absent, and one that was damaged later is refused."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from train.data import dataset as store
from train.data import registry
from train.data.dataset import ARRAYS, Dataset, fingerprint, make_dataset
from train.data.registry import DatasetFiles
from train.errors import DataError


def small(seed: int = 0) -> Dataset:
    pixels = np.random.default_rng(seed).integers(0, 256, (5, 4, 4, 3), np.uint8)
    labels = np.array([0, 1, 1, 0, 1])
    return make_dataset("Small", ("no", "yes"), (pixels[:3], labels[:3]), (pixels[3:], labels[3:]))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    store.write_prepared(tmp_path / "prepared" / "small-1", small())
    return tmp_path / "prepared" / "small-1"


def test_round_trip(made: Path) -> None:
    data, expected = store.read_prepared(made), small()
    for name in ARRAYS:
        found = getattr(data, name)
        assert np.array_equal(found, getattr(expected, name))
        assert found.dtype == (np.uint8 if name.endswith("x") else np.int64)
    for name in ("name", "classes", "fingerprint"):
        assert getattr(data, name) == getattr(expected, name)
    assert sorted(path.name for path in made.iterdir()) == sorted(
        [*(f"{name}.npy" for name in ARRAYS), "meta.json"]
    )
    assert np.array_equal(np.load(made / "train_x.npy"), expected.train_x)
    assert not (data.train_x.flags.writeable or data.train_x.flags.owndata), "mapped, not read"


def test_fingerprint_tells_content_shape_and_place_apart() -> None:
    x, y = np.zeros((2, 2, 1, 1), np.uint8), np.zeros(2, "<i8")
    other = np.zeros((2, 1, 2, 1), np.uint8)
    one = np.ones((2, 2, 1, 1), np.uint8)
    variants = [[x, y, x, y], [other, y, x, y], [x, y, other, y], [one, y, x, y], [x, y, one, y]]
    assert len({fingerprint(arrays) for arrays in variants}) == len(variants)
    assert fingerprint([x, y, x, y]) == fingerprint([x.copy(), y, x, y])


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def empty(file: Path) -> None:
    """As a node that crashed leaves it."""
    file.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, empty, Path.unlink])
def test_damaged_array_is_refused(made: Path, damage: Callable[[Path], None]) -> None:
    damage(made / "train_x.npy")
    with pytest.raises(DataError, match="Delete the folder") as caught:
        store.read_prepared(made)
    assert str(made / "train_x.npy") in str(caught.value)


def test_array_that_cannot_be_read_now_is_not_damaged(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is to delete what running cells use because a file server does not answer."""
    stale = OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(made / "train_x.npy"))
    monkeypatch.setattr(np, "memmap", Mock(side_effect=stale))
    with pytest.raises(OSError, match="Stale"):
        store.read_prepared(made)


def test_a_form_of_an_earlier_version_is_read(made: Path) -> None:
    meta = json.loads((made / "meta.json").read_text())
    counted = store.channel_statistics(small().train_x, np.arange(3))
    assert store.read_prepared(made).channels == counted, "to the bit"
    del meta["channels"]
    (made / "meta.json").write_text(json.dumps({"format": 1, "labelled": True, **meta}))
    data = store.read_prepared(made)
    assert (data.name, data.channels) == ("Small", None)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 2}'])
def test_damaged_meta_is_refused(made: Path, content: str) -> None:
    (made / "meta.json").write_text(content)
    with pytest.raises(DataError, match=r"(?s)meta.json is damaged.*Delete the folder"):
        store.read_prepared(made)


def test_first_of_two_is_kept(made: Path) -> None:
    before = (made / "meta.json").stat().st_ino
    store.write_prepared(made, small(1))
    assert (made / "meta.json").stat().st_ino == before
    assert names(made.parent) == ["small-1"]


def test_foreign_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small-1").mkdir()
    (tmp_path / "small-1" / "x").touch()
    with pytest.raises(DataError, match=r"meta.json is damaged: not there"):
        store.write_prepared(tmp_path / "small-1", small())
    assert names(tmp_path) == ["small-1"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError(28, "full")])
def test_broken_off_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    calls = []

    def break_off(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise error

    monkeypatch.setattr("os.fsync", break_off)
    with pytest.raises(error if isinstance(error, type) else type(error)):
        store.write_prepared(tmp_path / "small-1", small())
    assert names(tmp_path) == []


def test_left_over_of_a_killed_build_is_removed_after_a_day(tmp_path: Path) -> None:
    for name, age_s in (("old", 90_000), ("new", 3_000)):
        (tmp_path / f".small-1.{name}").mkdir()
        at = time.time() - age_s
        os.utime(tmp_path / f".small-1.{name}", (at, at))
    store.write_prepared(tmp_path / "small-1", small())
    assert names(tmp_path) == [".small-1.new", "small-1"]


def test_a_build_that_another_process_finishes_meanwhile_is_no_error(tmp_path: Path) -> None:
    """Its folder is listed, then renamed into place before it is looked at: a link to nowhere is
    listed, too, and is not there."""
    (tmp_path / ".small-1.gone").symlink_to(tmp_path / "nowhere")
    store.write_prepared(tmp_path / "small-1", small())
    assert "small-1" in names(tmp_path)


def test_what_was_prepared_with_the_raw_data_is_used(tmp_path: Path) -> None:
    """A class's data sets, prepared once for all; a user's own store is for what is not there."""
    shared, own = tmp_path / "shared", tmp_path / "results" / ".prepared"
    made = DatasetFiles("digits", shared).prepare()
    assert DatasetFiles("digits", shared, store=own).prepare() == made
    assert not own.exists()
    other = DatasetFiles("digits", tmp_path / "empty", store=own).prepare()
    assert other == own / made.name and not (tmp_path / "empty").exists()


def test_a_store_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What helps is another store, not another folder of raw data."""

    def full(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(tmp_path / "store" / "x.npy"))

    monkeypatch.setattr(registry, "write_prepared", full)
    with pytest.raises(DataError, match=r"store/x\.npy.*another folder with STORE=DIR"):
        DatasetFiles("digits", tmp_path, store=tmp_path / "store").prepare()
