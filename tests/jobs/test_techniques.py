"""Techniques as rows of data."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.techniques import PARAMETERS, load_techniques, spelled_out
from train.config import ConfigError
from train.schedule import learning_rate
from train.technique import Technique

GOOD = """
plain:
  label: Plain
  why: to test with
  base_lr: 0.1
  schedule: cosine
  optimizer: {name: sgd, momentum: 0.9}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "techniques.yaml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_techniques(write(folder, text))
    return str(caught.value)


def built(name: str, base_batch: int = 64) -> Technique:
    return Technique(name=name, base_batch=base_batch, **load_techniques()[name].settings({}))


def test_the_shipped_rows() -> None:
    rows = load_techniques()
    assert list(rows) == ["naive", "batch_norm", "lr_scaling", "lr_scaling_warmup", "lamb", "sgd"]
    assert all(row.label and row.why for row in rows.values())
    assert [set(row.fields) for row in rows.values()] == [set(PARAMETERS)] * len(rows)


def test_each_condition_differs_from_the_one_before_in_what_its_name_says() -> None:
    def differing(one: str, other: str) -> set[str]:
        left, right = built(one).model_dump(), built(other).model_dump()
        return {key for key in left if left[key] != right[key]} - {"name"}

    assert differing("naive", "batch_norm") == {"normalisation"}
    assert differing("batch_norm", "lr_scaling") == {"lr_scaling"}
    assert differing("lr_scaling", "lr_scaling_warmup") == {"warmup_epochs"}
    assert built("lamb").normalisation == built("batch_norm").normalisation
    assert (built("lamb").optimizer.name, built("lamb").lr_scaling) == ("lamb", "sqrt")


def test_at_the_base_batch_the_scaling_rows_are_batch_norm_once_more() -> None:
    """What the shipped sweeps say of their one-GPU cells."""

    def rates(name: str, batch: int) -> list[float]:
        technique = built(name)
        return [learning_rate(technique, batch, step, 22, 10) for step in range(220)]

    for name in ("lr_scaling", "lr_scaling_warmup"):
        assert rates(name, 64) == rates("batch_norm", 64)
        assert rates(name, 128) != rates("batch_norm", 128)


def test_a_row_is_filled_up_from_the_contract(tmp_path: Path) -> None:
    row = load_techniques(write(tmp_path, GOOD))["plain"]
    assert (row.label, row.why) == ("Plain", "to test with")
    assert row.fields["bn_momentum"] == Technique.model_fields["bn_momentum"].default
    assert row.fields["schedule"] == {"name": "cosine", "final": 0.0}
    assert row.fields["optimizer"] == {"name": "sgd", "momentum": 0.9, "nesterov": False}


def test_changes(tmp_path: Path) -> None:
    row = load_techniques(write(tmp_path, GOOD))["plain"]
    assert row.settings({}) == row.fields
    assert row.settings({"base_lr": 0.5})["base_lr"] == 0.5
    # with a name: another kind, its own defaults; without: numbers of the row's kind
    assert row.settings({"optimizer": "adam"})["optimizer"] == {"name": "adam"}
    assert row.settings({"optimizer": {"name": "sgd"}})["optimizer"] == {"name": "sgd"}
    assert row.settings({"optimizer": {"nesterov": True}})["optimizer"] == {
        "name": "sgd",
        "momentum": 0.9,
        "nesterov": True,
    }
    assert row.settings({}) == row.fields  # the row itself is as before


def test_short_forms() -> None:
    assert spelled_out("schedule", "step") == {"name": "step"}
    assert spelled_out("schedule", {"name": "step"}) == {"name": "step"}
    assert spelled_out("base_lr", 0.1) == 0.1
    assert spelled_out("dataset", "digits") == "digits"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("base_lr: 0.1", "base_rate: 0.1", 5, "did you mean 'base_lr'?"),
        ("base_lr: 0.1", "base_lr: -1", 5, "greater than 0"),
        ("base_lr: 0.1", "base_lr: '0.1'", 5, "valid number"),
        ("  base_lr: 0.1\n", "", 2, "base_lr"),
        ("label: Plain", "label: 5", 3, "expected a text as 'label'"),
        ("  why: to test with\n", "", 2, "expected a text as 'why'"),
        ("schedule: cosine", "schedule: cosin", 6, "'cosine'"),
        ("momentum: 0.9", "momentum: 1.5", 7, "less than 1"),
        ("momentum: 0.9", "beta_1: 0.9", 7, "beta_1"),
        ("base_lr: 0.1", "base_batch: 3", 5, "unknown key 'base_batch'"),
        ("plain:", "Plain Row:", 2, "name"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    text = refusal(tmp_path, GOOD.replace(old, new))
    assert f"techniques.yaml:{line}:" in text
    assert said in text


def test_a_row_has_fields(tmp_path: Path) -> None:
    assert "expected fields, found None" in refusal(tmp_path, "plain:\n")
