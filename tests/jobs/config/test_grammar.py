"""A sweep file as checked parts: what is refused, where, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.grammar import CELL_KEYS, TOP_LEVEL, Axis, parse, value_problem
from jobs.config.yamlfile import load_yaml
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError

TECHNIQUES = ("naive", "lr_scaling", "lamb")
GOOD = """\
name: small
title: A small sweep
dataset: digits
model: cnn
epochs: 2
batch_per_rank: 32
cores_per_rank: 1
matrix:
  gpus: [1, 2]
  technique: [naive, lamb]
  seeds: 2
zip:
  - data_fraction: [0.5, 1.0]
    base_batch: [16, 32]
exclude:
  - technique: lamb
    gpus: [2, 4]
include:
  - technique: lr_scaling
    gpus: 1
    seed: [0, 1]
override:
  - when: {technique: lamb}
    set: {base_lr: 0.01}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "small.yaml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(load_yaml(write(folder, text)), TECHNIQUES)
    return str(caught.value)


def plain(axis: Axis) -> list[dict[str, object]]:
    return [{key: setting.value for key, setting in part.items()} for part in axis]


def test_all_parts(tmp_path: Path) -> None:
    file = parse(load_yaml(write(tmp_path, GOOD)), TECHNIQUES)
    assert (file.name, file.title, file.cores_per_rank) == ("small", "A small sweep", 1)
    assert list(file.common) == ["dataset", "model", "epochs", "batch_per_rank"]
    assert [plain(axis) for axis in file.axes] == [
        [{"gpus": 1}, {"gpus": 2}],
        [{"technique": "naive"}, {"technique": "lamb"}],
        [{"seed": 0}, {"seed": 1}],
        [{"data_fraction": 0.5, "base_batch": 16}, {"data_fraction": 1.0, "base_batch": 32}],
    ]
    assert [rule.when for rule in file.exclude] == [{"technique": ["lamb"], "gpus": [2, 4]}]
    assert [[plain(axis) for axis in axes] for axes in file.include.values()] == [
        [[{"technique": "lr_scaling"}], [{"gpus": 1}], [{"seed": 0}, {"seed": 1}]]
    ]
    (rule,) = file.override
    assert rule.when == {"technique": ["lamb"]}
    assert plain((rule.sets,)) == [{"base_lr": 0.01}]


def test_what_may_be_left_out(tmp_path: Path) -> None:
    # all lines of a part commented out, no title; one rule needs no list and one value neither
    text = "dataset: digits\nmatrix: {gpus: 2}\nzip:\nexclude: {gpus: 2}\ninclude:\noverride:\n"
    file = parse(load_yaml(write(tmp_path, text)), TECHNIQUES)
    assert (file.name, file.title, file.cores_per_rank) == ("small", "small", None)
    assert [plain(axis) for axis in file.axes] == [[{"gpus": 2}]]
    assert [rule.when for rule in file.exclude] == [{"gpus": [2]}]
    assert (file.include, file.override) == ({}, ())


def test_a_file_name_that_cannot_be_a_sweep_name(tmp_path: Path) -> None:
    path = tmp_path / "My-Sweep.yaml"
    path.write_text("dataset: digits\n")
    with pytest.raises(ConfigError, match=r"name: String should match pattern.*\"My-Sweep\""):
        parse(load_yaml(path), TECHNIQUES)


COUNT = "expected a whole number, without quotes, found"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        # unknown keys and names, in each part: the nearest, the known ones
        ("epochs: 2", "epoch: 2", 5, "unknown key 'epoch'; did you mean 'epochs'? known: name"),
        ("epochs: 2", "seeds: 2", 5, "unknown key 'seeds'; did you mean 'seed'?"),
        ("  seeds: 2", "  title: x", 11, "unknown key 'title'"),
        ("base_batch: [", "base_batches: [", 14, "did you mean 'base_batch'?"),
        ("    gpus: [2, 4]", "    ranks: [2, 4]", 17, "unknown key 'ranks'"),
        ("when: {technique", "when: {techniques", 23, "did you mean 'technique'?"),
        ("set: {base_lr: 0.01}", "set: {base_rl: 0.01}", 24, "did you mean 'base_lr'?"),
        ("dataset: digits", "dataset: digit", 3, "did you mean 'digits'? known: digits, cifar10"),
        ("dataset: digits", "dataset: 'folder:'", 3, "folder:PATH"),
        ("model: cnn", "model: resnet_min", 4, "model: unknown value 'resnet_min'; did you mean "
         "'resnet_mini'? known: linear, mlp, cnn"),
        ("[naive, lamb]", "[naive, lambda]", 10, "did you mean 'lamb'? known: naive, lr_scaling"),
        ("epochs: 2", "optimizer: muonn", 5, "did you mean 'muon'? known: sgd, adam, adamw"),
        ("epochs: 2", "schedule: 5", 5, "unknown value '5'; known: constant, step, cosine, poly"),
        ("epochs: 2", "augmentation: {name: crop_flip, cropp: 2}", 5, "did you mean 'crop'?"),
        ("epochs: 2", "target: 0.75", 5, "target: expected keys and values, found 0.75"),
        ("epochs: 2", "target: {train_accuracy: 75}", 5,
         "target.train_accuracy: should be less than or equal to 1, found 75"),
        # types and ranges
        ("epochs: 2", "epochs: true", 5, f"{COUNT} true"),
        ("epochs: 2", "epochs: 0", 5, "should be greater than or equal to 1, found 0"),
        ("epochs: 2", "base_lr: .inf", 5, "should be a finite number"),
        ("gpus: [1, 2]", "gpus:\n    - 1\n    - '2'", 11, f'gpus: {COUNT} "2"'),
        ("[0.5, 1.0]", "[0.5, yes]", 13, 'expected a number, without quotes, found "yes"'),
        ("epochs: 2", "optimizer: {name: lamb, exclude: bias}", 5,
         'optimizer.lamb.exclude: expected a list, such as [a, b], found "bias"'),
        ("epochs: 2", "zero_gamma: 1", 5, "zero_gamma: should be a valid boolean, found 1"),
        ("cores_per_rank: 1", "cores_per_rank: 0", 7, "greater than or equal to 1"),
        ("title: A small sweep", "title: 2024", 2, "title: expected a text, in quotes, found 2024"),
        ("name: small", "name: Small", 1, "should match pattern '^[a-z0-9_]+$', found \"Small\""),
        # shapes
        ("epochs: 2", "epochs: [2, 3]", 5, "lists of values belong under 'matrix:'"),
        ("  seeds: 2", "  seeds: 2\n  seed: [1]", 11, "'seed' or 'seeds', not both"),
        ("gpus: [1, 2]", "gpus: []", 9, "the list is empty"),
        ("base_batch: [16, 32]", "base_batch: [16]", 13, "data_fraction 2, base_batch 1"),
        ("  seeds: 2", "  epochs: [1, 2]", 11, "'epochs' is given twice (also line 5)"),
        ("base_batch: [16, 32]", "gpus: [1, 2]", 14, "'gpus' is given twice (also line 9)"),
        ("  - when: {technique: lamb}\n    set", "  - set", 23, "when: expected 'key: value'"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    text = refusal(tmp_path, GOOD.replace(old, new, 1))
    assert said in text
    assert f"small.yaml:{line}:" in text


@pytest.mark.parametrize("part", ["matrix", "zip", "exclude", "include", "override"])
@pytest.mark.parametrize("value", ["5", "[5]", "[[]]", "[{}]"])
def test_parts_of_the_wrong_shape(tmp_path: Path, part: str, value: str) -> None:
    text = refusal(tmp_path, f"dataset: digits\n{part}: {value}\n")
    assert "small.yaml:2:" in text
    assert "expected 'key: value'" in text


def test_every_field_of_the_contract_is_a_key() -> None:
    fields = {*RunConfig.model_fields, *Technique.model_fields} - {"schema_version", "name"}
    assert set(CELL_KEYS) == fields | {"global_batch"}
    assert len(set(TOP_LEVEL)) == len(TOP_LEVEL)
    assert [value_problem(key, None, TECHNIQUES) for key in CELL_KEYS] == [None] * len(CELL_KEYS)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset", "folder:/some/where"), ("image_size", 64), ("data_fraction", 1),
        ("schedule", "cosine"), ("schedule", {"name": "step", "milestones": [0.25, 0.5]}),
        ("optimizer", {"momentum": 0.9}), ("optimizer", {"name": "lamb", "exclude": []}),
        ("warmup_epochs", 0), ("global_batch", 64), ("regime_adaptation", True),
        ("target", {"train_accuracy": 0.75, "validation_accuracy": 0.25, "within_s": 240}),
    ],
)  # fmt: skip
def test_good_values(key: str, value: object) -> None:
    assert value_problem(key, value, TECHNIQUES) is None
