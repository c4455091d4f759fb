"""Techniques as rows of data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from jobs.config.techniques import KINDS, PARAMETERS, load_techniques, spelled_out
from tests.builders import config
from train.config.datasets import DATASETS
from train.config.optimizer import Sgd
from train.config.plan import plan_of
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError

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


def cell(name: str, **changes: Any) -> RunConfig:
    values = {"dataset": "cifar10", "model": "resnet_mini", "batch_per_rank": 256, "epochs": 12}
    return config(technique=built(name, 256), **(values | changes))


def test_the_shipped_rows() -> None:
    rows = load_techniques()
    courses = ["naive", "batch_norm", "lr_scaling", "lr_scaling_warmup", "lamb", "sgd"]
    assert list(rows)[:6] == courses
    assert {
        "ghost_batch_norm", "sync_batch_norm", "sqrt_scaling", "adamw", "nesterov", "adascale",
        "lars", "larc", "novograd", "muon", "gradient_noise", "growing_batch",
        "regime_adaptation", "adasum", "fp16_compression", "bf16_compression", "mixed_precision",
    } <= set(rows)  # fmt: skip
    assert all(row.label and row.why for row in rows.values())
    assert len({row.label for row in rows.values()}) == len(rows)
    assert [set(row.fields) for row in rows.values()] == [set(PARAMETERS)] * len(rows)


@pytest.mark.parametrize("name", load_techniques())
@pytest.mark.parametrize("ranks", [1, 2, 16])
def test_every_row_has_a_plan_for_one_rank_and_for_many(name: str, ranks: int) -> None:
    images = DATASETS["cifar10"].train_images
    if name == "growing_batch" and ranks == 16:
        with pytest.raises(ConfigError, match="from 4,096 to 20,480, passes the largest batch"):
            plan_of(cell(name, gpus=ranks), images)
        return
    plan = plan_of(cell(name, gpus=ranks), images)
    assert all(plan.rate(step) > 0 for step in range(plan.total_steps))


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ("naive", "batch_norm", {"normalisation"}),
        ("batch_norm", "lr_scaling", {"lr_scaling"}),
        ("lr_scaling", "lr_scaling_warmup", {"warmup_epochs"}),
        ("batch_norm", "ghost_batch_norm", {"normalisation", "ghost_batch"}),
        ("batch_norm", "sync_batch_norm", {"normalisation"}),
        ("lr_scaling_warmup", "sqrt_scaling", {"lr_scaling"}),
        ("sqrt_scaling", "adamw", {"optimizer"}),
        ("sqrt_scaling", "lamb", {"optimizer", "base_lr"}),
        ("lamb", "lars", {"optimizer", "base_lr", "schedule"}),
        ("nesterov", "adascale", {"lr_scaling", "warmup_epochs"}),
        ("nesterov", "adasum", {"lr_scaling", "warmup_epochs", "reduction"}),
        ("nesterov", "larc", {"optimizer", "base_lr"}),
        ("batch_norm", "gradient_noise",
         {"noise_batch", "clip_norm", "warmup_epochs", "warmup_from"}),
        ("batch_norm", "growing_batch", {"batch_growth"}),
        ("ghost_batch_norm", "regime_adaptation", {"regime_adaptation", "clip_norm", "lr_scaling"}),
        ("batch_norm", "fp16_compression", {"compression"}),
        ("batch_norm", "bf16_compression", {"compression"}),
        ("batch_norm", "mixed_precision", {"precision"}),
    ],
)  # fmt: skip
def test_rows_differ_in_what_their_names_say(one: str, other: str, what: set[str]) -> None:
    left, right = built(one).model_dump(), built(other).model_dump()
    assert {key for key in left if left[key] != right[key]} - {"name"} == what


def test_the_page_says_where_each_row_departs_from_its_source() -> None:
    page = (Path(__file__).parents[3] / "docs" / "techniques.md").read_text()
    table = page.split("## Where rows depart", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(load_techniques())


def test_at_the_base_batch_the_scaling_rows_are_batch_norm_once_more() -> None:
    """What the shipped sweeps say of their one-GPU cells."""

    def rates(name: str, gpus: int) -> list[float]:
        plan = plan_of(cell(name, gpus=gpus), 5000)
        return [plan.rate(step) for step in range(plan.total_steps)]

    for name in ("lr_scaling", "lr_scaling_warmup", "sqrt_scaling"):
        assert rates(name, 1) == rates("batch_norm", 1)
        assert rates(name, 2) != rates("batch_norm", 2)


def test_kinds_are_the_fields_with_a_choice_of_types() -> None:
    assert list(KINDS) == ["augmentation", "schedule", "batch_growth", "optimizer"]
    assert spelled_out("schedule", "step") == {"name": "step"}
    assert spelled_out("schedule", {"name": "step"}) == {"name": "step"}
    assert spelled_out("base_lr", 0.1) == 0.1


def test_a_row_is_filled_up_from_the_contract(tmp_path: Path) -> None:
    row = load_techniques(write(tmp_path, GOOD))["plain"]
    assert (row.label, row.why) == ("Plain", "to test with")
    assert row.fields["bn_momentum"] == Technique.model_fields["bn_momentum"].default
    assert row.fields["schedule"] == {"name": "cosine", "final": 0.0}
    assert row.fields["optimizer"] == Sgd(momentum=0.9).model_dump(mode="json")
    assert row.fields["batch_growth"] == {"name": "fixed"}


def test_changes(tmp_path: Path) -> None:
    row = load_techniques(write(tmp_path, GOOD))["plain"]
    assert row.settings({}) == row.fields
    assert row.settings({"base_lr": 0.5})["base_lr"] == 0.5
    # with a name: another kind, its own defaults; without: numbers of the row's kind
    assert row.settings({"optimizer": "adam"})["optimizer"] == {"name": "adam"}
    assert row.settings({"optimizer": {"name": "sgd"}})["optimizer"] == {"name": "sgd"}
    changed = Sgd(momentum=0.9, nesterov=True).model_dump(mode="json")
    assert row.settings({"optimizer": {"nesterov": True}})["optimizer"] == changed
    assert row.settings({"augmentation": "crop_flip"})["augmentation"] == {"name": "crop_flip"}
    assert row.settings({}) == row.fields  # the row itself is as before


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("base_lr: 0.1", "base_rate: 0.1", 5, "did you mean 'base_lr'?"),
        ("base_lr: 0.1", "base_lr: -1", 5, "greater than 0"),
        ("base_lr: 0.1", "base_lr: '0.1'", 5, "base_lr: expected a number, without quotes"),
        ("  base_lr: 0.1\n", "", 2, "base_lr: this key is missing"),
        ("label: Plain", "label: 5", 3, "expected a text as 'label'"),
        ("  why: to test with\n", "", 2, "expected a text as 'why'"),
        ("schedule: cosine", "schedule: cosin", 6, "'cosine'"),
        ("momentum: 0.9", "momentum: 1.5", 7, "less than 1"),
        ("momentum: 0.9", "beta_1: 0.9", 7, "beta_1"),
        ("base_lr: 0.1", "base_batch: 3", 5, "unknown key 'base_batch'"),
        ("plain:", "Plain Row:", 2, "name"),
        # what is wrong with two fields together stands at the one that is named first
        ("base_lr: 0.1", "base_lr: 0.1\n  ghost_batch: 8", 6, "ghost_batch 8 has no effect"),
        ("schedule: cosine", "schedule: cosine\n  batch_growth: grow", 7, "say schedule: constant"),
        ("momentum: 0.9", "exclude: ['(']", 7, "'(' is no regular expression"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    text = refusal(tmp_path, GOOD.replace(old, new))
    assert f"techniques.yaml:{line}:" in text
    assert said in text


def test_a_row_has_fields(tmp_path: Path) -> None:
    assert "plain: expected 'key: value', found None" in refusal(tmp_path, "plain:\n")
