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
    assert [dict(rule.when) for rule in file.exclude] == [{"technique": ("lamb",), "gpus": (2, 4)}]
    assert [[plain(axis) for axis in entry.axes] for entry in file.include] == [
        [[{"technique": "lr_scaling"}], [{"gpus": 1}], [{"seed": 0}, {"seed": 1}]]
    ]
    (rule,) = file.override
    assert dict(rule.when) == {"technique": ("lamb",)}
    assert {key: setting.value for key, setting in rule.sets.items()} == {"base_lr": 0.01}


def test_name_and_title_have_defaults(tmp_path: Path) -> None:
    file = parse(load_yaml(write(tmp_path, "dataset: digits\n")), TECHNIQUES)
    assert (file.name, file.title, file.cores_per_rank) == ("small", "small", None)


def test_a_file_name_that_cannot_be_a_sweep_name(tmp_path: Path) -> None:
    path = tmp_path / "My-Sweep.yaml"
    path.write_text("dataset: digits\n")
    with pytest.raises(ConfigError, match=r"'My-Sweep'.*rename the file or give it a 'name:'"):
        parse(load_yaml(path), TECHNIQUES)


def test_parts_whose_lines_are_all_commented_out_are_absent(tmp_path: Path) -> None:
    text = "dataset: digits\nmatrix:\nzip:\nexclude:\ninclude:\noverride:\n"
    file = parse(load_yaml(write(tmp_path, text)), TECHNIQUES)
    assert (file.axes, file.exclude, file.include, file.override) == ((), (), (), ())


def test_one_rule_needs_no_list_and_one_value_no_list(tmp_path: Path) -> None:
    text = "matrix: {gpus: 2}\nexclude: {gpus: 2}\n"
    file = parse(load_yaml(write(tmp_path, text)), TECHNIQUES)
    assert plain(file.axes[0]) == [{"gpus": 2}]
    assert dict(file.exclude[0].when) == {"gpus": (2,)}


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        # unknown keys and names: the nearest, the known ones
        ("epochs: 2", "epoch: 2", 5, "unknown key 'epoch'; did you mean 'epochs'? known: name"),
        ("gpus: [1, 2]", "gpu: [1, 2]", 9, "unknown key 'gpu'; did you mean 'gpus'?"),
        ("    gpus: [2, 4]", "    ranks: [2, 4]", 17, "unknown key 'ranks'"),
        ("    gpus: 1", "    gpos: 1", 20, "did you mean 'gpus'?"),
        ("set: {base_lr: 0.01}", "set: {base_rl: 0.01}", 24, "did you mean 'base_lr'?"),
        ("set: {base_lr", "sets: {base_lr", 24, "unknown key 'sets'; did you mean 'set'?"),
        ("dataset: digits", "dataset: digit", 3, "did you mean 'digits'? known: digits, cifar10"),
        ("dataset: digits", "dataset: 'folder:'", 3, "folder:PATH"),
        (
            "model: cnn",
            "model: resnet_min",
            4,
            "did you mean 'resnet_mini'? known: linear, mlp, cnn",
        ),
        ("[naive, lamb]", "[naive, lambda]", 10, "did you mean 'lamb'? known: naive, lr_scaling"),
        ("- technique: lamb", "- technique: lam", 16, "did you mean 'lamb'?"),
        ("epochs: 2", "scaling: string", 5, "did you mean 'strong'?"),
        ("epochs: 2", "lr_scaling: squared", 5, "known: none, linear, sqrt, adascale"),
        ("epochs: 2", "framework: horovodd", 5, "did you mean 'horovod'? known: horovod, mirrored"),
        ("epochs: 2", "normalisation: ghost_batchnorm", 5, "did you mean 'ghost_batch_norm'?"),
        ("epochs: 2", "batch_growth: growing", 5, "known: fixed, grow"),
        ("epochs: 2", "augmentation: {name: crop_flip, cropp: 2}", 5, "did you mean 'crop'?"),
        ("epochs: 2", "optimizer: muonn", 5, "did you mean 'muon'? known: sgd, adam, adamw"),
        ("epochs: 2", "target: 0.75", 5, "target: expected {train_accuracy: ..., ...} of train"),
        ("epochs: 2", "target: {accuracy: 0.75}", 5, "target: unknown key 'accuracy'; did you"),
        (
            "epochs: 2",
            "target: {train_accuracy: 75}",
            5,
            "target.train_accuracy: expected less than or equal to 1, found 75",
        ),
        ("epochs: 2", "target: {held_for: 2}", 5, "target needs train_accuracy"),
        ("epochs: 2", "schedule: cosin", 5, "did you mean 'cosine'?"),
        ("epochs: 2", "schedule: {name: stp}", 5, "did you mean 'step'?"),
        ("epochs: 2", "optimizer: {nam: lamb}", 5, "optimizer: unknown key 'nam'"),
        ("epochs: 2", "optimizer: {name: sgd, beta_1: 0.5}", 5, "known: name, momentum"),
        # types and ranges
        ("epochs: 2", "epochs: two", 5, 'epochs: expected a valid integer, found "two"'),
        ("epochs: 2", "epochs: '2'", 5, "write the number without quotes"),
        ("epochs: 2", "epochs: 2.5", 5, "found 2.5"),
        ("epochs: 2", "epochs: true", 5, "found true"),
        ("epochs: 2", "epochs: 0", 5, "greater than or equal to 1, found 0"),
        ("epochs: 2", "epochs: {a: 1}", 5, "valid integer"),
        ("gpus: [1, 2]", "gpus: [1, '2']", 9, 'found "2" (write the number without quotes)'),
        ("gpus: [1, 2]", "gpus: [1, [2]]", 9, "valid integer"),
        ("[0.5, 1.0]", "[0.5, 1.5]", 13, "less than or equal to 1, found 1.5"),
        ("[0.5, 1.0]", "[0.5, yes]", 13, 'expected a valid number, found "yes"'),
        ("dataset: digits", "dataset: 3", 3, "unknown dataset 3"),
        ("epochs: 2", "schedule: {name: step, factor: 2}", 5, "schedule.factor: expected less"),
        ("epochs: 2", "schedule: {name: step, milestones: [0.5, 0.2]}", 5, "milestones must rise"),
        ("epochs: 2", "schedule: 5", 5, "one of constant, step, cosine, polynomial or {name: "),
        ("epochs: 2", "accumulation: 0", 5, "greater than or equal to 1, found 0"),
        (
            "epochs: 2",
            "noise_batch: many",
            5,
            'noise_batch: expected a valid integer, found "many"',
        ),
        ("epochs: 2", "zero_gamma: 1", 5, "zero_gamma: expected a valid boolean, found 1"),
        (
            "epochs: 2",
            "batch_growth: {name: grow, factor: 1}",
            5,
            "batch_growth.factor: expected g",
        ),
        ("cores_per_rank: 1", "cores_per_rank: 0", 7, "greater than or equal to 1"),
        ("title: A small sweep", "title: 2024", 2, "expected a text, found 2024; quote it"),
        ("name: small", "name: Small", 1, "'Small': expected small letters"),
        ("seeds: 2", "seeds: [0, 1]", 11, "seeds: expected a valid integer"),
        ("seeds: 2", "seed: 2.5", 11, "seed: expected a valid integer"),
        # shapes
        ("epochs: 2", "epochs: [2, 3]", 5, "a list of values belongs under 'matrix:'"),
        ("epochs: 2", "seeds: 2", 5, "'seeds' stands under matrix"),
        ("    gpus: [2, 4]", "    seeds: 2", 17, "'seeds' stands under matrix"),
        ("  seeds: 2", "  seeds: 2\n  seed: [1]", 11, "'seed' or 'seeds', not both"),
        ("gpus: [1, 2]", "gpus: []", 9, "the list is empty"),
        ("base_batch: [16, 32]", "base_batch: [16]", 13, "data_fraction 2, base_batch 1"),
        ("  seeds: 2", "  epochs: [1, 2]", 11, "'epochs' is given twice (also line 5)"),
        ("base_batch: [16, 32]", "gpus: [1, 2]", 14, "'gpus' is given twice (also line 9)"),
        ("  - when: {technique: lamb}\n    set", "  - set", 23, "when: expected 'key: value'"),
        ("  - when: {technique: lamb}", "  - when: {}", 23, "when: expected 'key: value'"),
        ("  seeds: 2", "  title: x", 11, "'title' belongs to the top level"),
    ],
)
def test_what_is_refused(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    text = refusal(tmp_path, GOOD.replace(old, new, 1))
    assert said in text
    assert f"small.yaml:{line}:" in text


@pytest.mark.parametrize("part", ["matrix", "zip", "exclude", "include", "override"])
@pytest.mark.parametrize("value", ["5", "[5]", "[[]]", "text", "[{}]"])
def test_parts_of_the_wrong_shape(tmp_path: Path, part: str, value: str) -> None:
    text = refusal(tmp_path, f"dataset: digits\n{part}: {value}\n")
    assert "small.yaml:2:" in text
    assert "expected 'key: value'" in text


def test_every_field_of_the_contract_is_a_key() -> None:
    fields = {*RunConfig.model_fields, *Technique.model_fields} - {"schema_version", "name"}
    assert set(CELL_KEYS) == fields | {"global_batch"}
    assert len(set(TOP_LEVEL)) == len(TOP_LEVEL)


@pytest.mark.parametrize("key", CELL_KEYS)
def test_null_unsets_any_key(key: str) -> None:
    assert value_problem(key, None, TECHNIQUES) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset", "folder:/some/where"), ("dataset", "mnist"), ("image_size", 64),
        ("pretrained", "weights.h5"), ("data_fraction", 1), ("data_fraction", 0.1),
        ("schedule", "cosine"), ("schedule", {"name": "step", "milestones": [0.25, 0.5]}),
        ("optimizer", {"momentum": 0.9}), ("optimizer", {"name": "lamb", "exclude": []}),
        ("warmup_epochs", 0), ("warmup_epochs", 1.5), ("partition", "whole"), ("seed", 0),
        ("framework", "mirrored"), ("accumulation", 8), ("ghost_batch", 32), ("clip_norm", 1),
        ("target", {"train_accuracy": 0.75, "validation_accuracy": 0.25, "within_s": 240}),
        ("augmentation", {"crop": 2}), ("augmentation", "crop_flip"), ("batch_growth", "grow"),
        ("schedule", {"name": "step", "milestones": [3, 7], "unit": "epochs"}),
        ("optimizer", {"name": "muon", "rest": "lamb"}), ("regime_adaptation", True),
    ],
)  # fmt: skip
def test_good_values(key: str, value: object) -> None:
    assert value_problem(key, value, TECHNIQUES) is None
