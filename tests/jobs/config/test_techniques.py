"""Techniques as rows of data."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.techniques import Row, changed, load_techniques
from tests.builders import refusal
from train.config.optimizer import Sgd

GOOD = """
plain:
  label: Plain
  why: to test with
  base_lr: 0.1
  schedule: cosine
  optimizer: {name: sgd, momentum: 0.9}
"""


def load(folder: Path, text: str) -> dict[str, Row]:
    path = folder / "techniques.yaml"
    path.write_text(text)
    return load_techniques(path)


def test_changes(tmp_path: Path) -> None:
    row = load(tmp_path, GOOD)["plain"]
    assert changed(row, {"base_lr": 0.5})["base_lr"] == 0.5
    # with a name: another kind, its own defaults; without: numbers of the row's kind
    assert changed(row, {"optimizer": "adam"})["optimizer"] == {"name": "adam"}
    assert changed(row, {"optimizer": {"name": "sgd"}})["optimizer"] == {"name": "sgd"}
    nesterov = Sgd(momentum=0.9, nesterov=True).model_dump(mode="json")
    assert changed(row, {"optimizer": {"nesterov": True}})["optimizer"] == nesterov
    assert changed(row, {"augmentation": "crop_flip"})["augmentation"] == {"name": "crop_flip"}
    assert changed(row, {}) == row  # the row itself is as before


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("base_lr: 0.1", "base_rate: 0.1", 5, "did you mean 'base_lr'?"),
        ("base_lr: 0.1", "base_lr: '0.1'", 5, "base_lr: should be a valid number, found"),
        ("  base_lr: 0.1\n", "", 2, "base_lr: Field required"),
        ("why: to", "because: to", 4, "unknown key 'because'"),
        ("base_lr: 0.1", "base_batch: 3", 5, "unknown key 'base_batch'"),
        ("plain:", "Plain Row:", 2, "name"),
        # what is wrong with two fields together stands at the one that is named first
        ("base_lr: 0.1", "base_lr: 0.1\n  ghost_batch: 8", 6, "ghost_batch has no effect"),
        ("schedule: cosine", "schedule: cosine\n  batch_growth: grow", 7, "leave out schedule"),
        ("momentum: 0.9", "exclude: ['(']", 7, "is no regular expression"),
        ("plain:\n", "plain:\nother:\n", 2, "plain: expected 'key: value', found None"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    text = refusal(load, tmp_path, GOOD.replace(old, new))
    assert f"techniques.yaml:{line}:" in text and said in text
