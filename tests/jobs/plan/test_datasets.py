"""Where prepared data go: with the raw data, or where these are read-only with the results."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from jobs.config.load import load_sweep
from jobs.plan.datasets import store_for, train_images
from jobs.plan.rows import plans_of
from tests.builders import config, refusal
from tests.train.data.raw_files import class_folders, picture
from train.config.datasets import forms_key, read_forms


@pytest.mark.parametrize(
    ("data", "read_only", "store"),
    [
        ("data", "", "data/prepared"),
        ("data/not/yet", "", "data/not/yet/prepared"),
        ("data", "data", "results/.prepared"),  # a class's data sets
        ("checkout/.data", "checkout", "results/.prepared"),  # an installation by root, no DATA=
        ("data", "data/prepared", "results/.prepared"),  # prepared by another user
        ("data", "checkout", "data/prepared"),  # DATA= of the user's own
        # where neither can be written
        ("data", ".", "data/prepared"),
    ],
)
def test_prepared_data_go_where_the_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, read_only: str, store: str
) -> None:
    for name in ("data/prepared" if read_only == "data/prepared" else "data", "checkout"):
        (tmp_path / name).mkdir(parents=True)
    closed = {tmp_path / read_only} if read_only else set()
    if read_only == ".":
        closed |= {tmp_path / "data"}

    def access(path: Path, mode: int) -> bool:  # root may write anywhere
        return path.exists() if mode == os.F_OK else path not in closed

    monkeypatch.setattr(os, "access", access)
    assert store_for(tmp_path / data, tmp_path / "results") == tmp_path / store


SWEEP = """
dataset: arrays:birds.npz
model: cnn
technique: naive
batch_per_rank: 4
epochs: 1
gpus: 2
"""


def test_arrays_of_a_sweep_are_hashed_prepared_and_planned(tmp_path: Path) -> None:
    def save(side: int) -> None:
        parts = {"train": 32, "test": 8}
        arrays = {f"x_{part}": np.zeros((n, side, side), np.uint8) for part, n in parts.items()}
        arrays |= {f"y_{part}": np.arange(n) % 2 for part, n in parts.items()}
        np.savez(tmp_path / "birds.npz", **arrays)

    (tmp_path / "mine.yaml").write_text(SWEEP + "augmentation: {name: crop_flip, crop: 6}")

    def planned() -> dict[str, int]:
        configs = load_sweep(str(tmp_path / "mine.yaml"), data=tmp_path).configs
        images = train_images(configs, tmp_path, tmp_path / "prepared")
        return {name: plan.total_steps for name, plan in plans_of(configs, images).items()}

    save(12)
    first = planned()
    assert list(first.values()) == [4] and next(iter(first)).startswith("birds-cnn-naive-")
    save(16)
    assert planned().keys() != first.keys(), "another content, another cell"
    save(6)
    assert "have 6 pixels: use at most 5" in refusal(planned)


def test_a_sweep_notes_the_forms_of_its_data_and_those_of_changed_files_again(
    tmp_path: Path,
) -> None:
    """Its ranks go by them, and list no raw files."""
    pets = class_folders(tmp_path / "pets", {"cat": 3, "dog": 3})
    cells, sweep = [config(dataset="folder:pets", image_size=8)], tmp_path / "sweep"

    def noted() -> dict[str, str]:
        train_images(cells, tmp_path, tmp_path / "prepared", sweep)
        assert all((tmp_path / "prepared" / name).is_dir() for name in read_forms(sweep).values())
        return read_forms(sweep)

    first, of_pets = noted(), forms_key("folder:pets", 8, tmp_path)
    assert list(first) == [of_pets]
    picture(pets / "cat" / "new.png")
    assert noted() != first
    cells[:] = [config()]
    assert of_pets in noted() and len(noted()) == 2, "cells of before may be in the queue"
    for damaged in ("[", "[1]", '{"a": "../elsewhere", "b": 3, "c": "/etc"}'):
        (sweep / "forms.json").write_text(damaged)
        assert read_forms(sweep) == {}
    assert list(noted()) == [forms_key("digits", None, tmp_path)]
