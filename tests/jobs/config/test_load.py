"""From a sweep file to configs, and what is refused, where."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.grammar import CELL_KEYS, TOP_LEVEL
from jobs.config.load import load_sweep
from jobs.config.sweep import Sweep
from tests.builders import refusal
from train.config.optimizer import Sgd
from train.config.run import RunConfig
from train.config.technique import Technique
from train.errors import ConfigError

COMMON = {"dataset": "digits", "model": "cnn", "epochs": 4, "batch_per_rank": 32}
NEEDED = {"gpus": 1, "technique": "naive"}


def load(content: dict[str, Any] | str) -> Sweep:
    text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yaml"
        path.write_text(text)
        return load_sweep(str(path))


def test_matrix_rules_and_includes_in_their_order() -> None:
    """A rule drops or sets what has all of it, as it was written before any override; of two
    overrides the later wins; what is equal in the end is one cell."""
    content = {
        **COMMON, "matrix": {"gpus": [1, 2], "technique": ["naive", "sgd"], "seeds": 2},
        "exclude": [{"technique": "sgd", "gpus": [2, 4]},
                    {"technique": "naive", "gpus": 1}],
        "include": [{"technique": "lamb", "gpus": 1, "seed": [0, 1]},
                    {"technique": "naive", "gpus": 2, "seed": [2, 0]}],
        "override": [
            {"when": {"technique": ["naive", "lamb"], "seed": 0}, "set": {"epochs": 9}},
            {"when": {"technique": "lamb"}, "set": {"epochs": 7}},
            {"when": {"technique": "sgd"}, "set": {"technique": "lars"}},
            {"when": {"technique": "sgd", "seed": 1}, "set": {"epochs": 5}},
        ],
    }  # fmt: skip
    found = load(content)
    assert [(c.gpus, c.technique.name, c.seed, c.epochs) for c in found.configs] == [
        (1, "lars", 0, 4), (1, "lars", 1, 5), (2, "naive", 0, 9), (2, "naive", 1, 4),
        (1, "lamb", 0, 7), (1, "lamb", 1, 7), (2, "naive", 2, 4),
    ]  # fmt: skip
    assert found.techniques == ("naive", "lamb", "lars"), "the order of the file, not of cells"


def test_zipped_lists_advance_together_and_groups_are_crossed() -> None:
    content = {
        "dataset": "digits", "epochs": 4, "matrix": {"technique": ["naive", "sgd"]},
        "zip": [
            {"model": ["cnn", "resnet_mini"], "batch_per_rank": [64, 128]},
            {"gpus": [1, 2, 4], "seed": [5, 6, 7]},
        ],
    }  # fmt: skip
    cells = load(content).configs
    assert len(cells) == 2 * 2 * 3
    assert {(c.model, c.batch_per_rank) for c in cells} == {("cnn", 64), ("resnet_mini", 128)}
    assert {(c.gpus, c.seed) for c in cells} == {(1, 5), (2, 6), (4, 7)}


def test_parameters_of_a_technique_can_be_shared_varied_and_overridden() -> None:
    content = {
        **COMMON, "gpus": 1, "schedule": "cosine",
        "matrix": {"technique": ["naive", "sgd"], "base_lr": [0.1, 0.2]},
        "override": [
            {"when": {"optimizer": "sgd"}, "set": {"optimizer": {"momentum": 0.5}, "base_lr": 0.3}},
            {"when": {"base_lr": 0.2, "optimizer": {"nesterov": True}}, "set": {"base_lr": 0.4}},
        ],
    }  # fmt: skip
    techniques = [config.technique for config in load(content).configs]
    assert {technique.schedule.name for technique in techniques} == {"cosine"}
    assert [(technique.name, technique.base_lr) for technique in techniques] == [
        ("naive", 0.1), ("naive", 0.2), ("sgd", 0.3), ("sgd", 0.4),  # the later rule wins
    ]  # fmt: skip
    assert techniques[2].optimizer == Sgd(momentum=0.5, nesterov=True)
    assert techniques[0].optimizer.name == "adam"


STRONG = {
    "dataset": "digits", "model": "cnn", "epochs": 4, "technique": "naive", "scaling": "strong",
    "global_batch": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "batches", "base"),
    [
        ({**COMMON, "technique": "naive"}, [(32, 1), (32, 1), (32, 1)], 32),
        ({**COMMON, "technique": "naive", "base_batch": 256}, [(32, 1), (32, 1), (32, 1)], 256),
        ({**COMMON, "technique": "naive", "accumulation": 8}, [(32, 8), (32, 8), (32, 8)], 32),
        (STRONG, [(128, 1), (64, 1), (16, 1)], 128),
        # the accumulation follows from what fits into memory, or the batch from the accumulation
        ({**STRONG, "batch_per_rank": 16}, [(16, 8), (16, 4), (16, 1)], 128),
        ({**STRONG, "accumulation": 4}, [(32, 4), (16, 4), (4, 4)], 128),
    ],
)
def test_batches(content: dict[str, Any], batches: list[tuple[int, int]], base: int) -> None:
    configs = load({**content, "matrix": {"gpus": [1, 2, 8]}}).configs
    assert [(c.batch_per_rank, c.accumulation) for c in configs] == batches
    assert {c.technique.base_batch for c in configs} == {base}


@pytest.mark.parametrize("rule", [{"lr_scaling": "linear"}, {"regime_adaptation": True}])
def test_a_rule_needs_a_base_where_the_batch_is_an_axis(rule: dict[str, Any]) -> None:
    """Each batch would be its own base, and the rule would never act."""
    strong = {key: value for key, value in STRONG.items() if key != "global_batch"} | {"gpus": 1}
    content = {**strong, "matrix": {"global_batch": [32, 64]}}
    text = refusal(load, {**content, **rule})
    assert "global_batch changes between cells and technique naive goes by it" in text
    assert "say the global batch that base_lr belongs to, e.g. base_batch: 32" in text
    weak = {"scaling": "weak", "matrix": {"batch_per_rank": [16, 32]}}
    assert "batch_per_rank changes between cells" in refusal(load, {**strong, **rule, **weak})
    assert len(load({**content, **rule, "base_batch": 32}).configs) == 2
    own = {"zip": [{"global_batch": [32, 64], "base_batch": [32, 64]}]}
    assert len(load({**strong, **rule, **own}).configs) == 2
    assert len(load(content).configs) == 2


GOOD = """\
name: small
title: A small sweep
dataset: digits
model: cnn
epochs: 10
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


def test_what_a_file_says_of_the_whole_sweep_and_may_leave_out() -> None:
    sweep = load(GOOD)
    assert (sweep.name, sweep.title, sweep.cores_per_rank) == ("small", "A small sweep", 1)
    # all lines of a part commented out, no title; one rule needs no list and one value neither
    text = "dataset: digits\nmodel: cnn\nepochs: 2\nbatch_per_rank: 8\ntechnique: naive\n"
    sweep = load(f"{text}title:\nmatrix: {{gpus: [2, 1]}}\nzip:\nexclude: {{gpus: 1}}\ninclude:\n")
    assert (sweep.name, sweep.title, sweep.cores_per_rank) == ("mine", "mine", None)
    assert [config.gpus for config in sweep.configs] == [2]
    alone = load({**COMMON, "include": [{"technique": "naive", "gpus": [1, 2]}]})
    assert [config.gpus for config in alone.configs] == [1, 2]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        # unknown keys and names, in each part
        ("epochs: 10", "epoch: 2", 5, "unknown key 'epoch'; did you mean 'epochs'? known: name"),
        ("  seeds: 2", "  title: x", 11, "unknown key 'title'"),
        ("set: {base_lr: 0.01}", "set: {base_rl: 0.01}", 24, "did you mean 'base_lr'?"),
        ("dataset: digits", "dataset: digit", 3, "known: digits, cifar10"),
        ("technique: lr_scaling", "technique: lr_scalin", 19, "did you mean 'lr_scaling'?"),
        ("epochs: 10", "epochs: 10\noptimizer: muonn", 6, "'muonn' found using 'name'"),
        ("epochs: 10", "epochs: 10\noptimizer: {nam: 1}", 6,
         "optimizer.adam: unknown key 'nam'; did you mean 'name'?"),
        # types and ranges
        ("gpus: [1, 2]", "gpus:\n    - 1\n    - 2\n    - '3'", 12, 'found "3" (cell: gpus=3'),
        ("epochs: 10", "epochs: 10\ntarget: {train_accuracy: 75}", 6,
         "target.train_accuracy: should be less than or equal to 1, found 75"),
        ("name: small", "name: Small", 1, "should match pattern '^[a-z0-9_]+$', found \"Small\""),
        # shapes
        ("epochs: 10", "epochs: [2, 3]", 5, "lists of values belong under 'matrix:'"),
        ("  seeds: 2", "  seeds: 2\n  seed: [1]", 12, "'seed' or 'seeds', not both"),
        ("  seeds: 2", "  seeds: true", 11, "seeds: expected a number, found True"),
        ("gpus: [1, 2]", "gpus: []", 9, "the list is empty"),
        ("base_batch: [16, 32]", "base_batch: [16]", 13, "data_fraction 2, base_batch 1"),
        ("  seeds: 2", "  epochs: [1, 2]", 11, "'epochs' is given twice (also line 5)"),
        ("base_batch: [16, 32]", "gpus: [1, 2]", 14, "'gpus' is given twice (also line 9)"),
        ("  - when: {technique: lamb}\n    set", "  - set", 23, "when: expected 'key: value'"),
        # rules that match nothing, no cell, too many
        ("technique: lamb\n    gpus: [2", "technique: sgd\n    gpus: [2", 16, "this exclude rule "
         'matches none of the 16 cells: technique is never "sgd" (it is "naive", "lamb")'),
        ("gpus: [2, 4]", "lr_scaling: none", 16, "none has all of it at once"),
        # rules that match, with a value that no cell could have
        ("technique: lamb\n    gpus: [2", "technique: [lamb, naiv]\n    gpus: [2", 16,
         "did you mean 'naive'"),
        ("gpus: [2, 4]", "gpus: [2, '1']", 17, "gpus: expected a number, found"),
        ("when: {technique: lamb}", "when: {technique: lamb, gpus: 2}", 23,
         "this override rule matches none of the 14 cells: none has all of it at once"),
        ("seeds: 2", "seeds: 1000000000000", 8, "the sweep has 80,010 cells, 10,000 are all"),
        # cells that are incomplete or at odds with themselves
        ("epochs: 10", "epochs:", 5, "'epochs' is missing"),
        ("epochs: 10", "epochs: 10\nscaling: strong", 1, "'global_batch' is missing"),
        ("epochs: 10", "epochs: 10\nglobal_batch: 64", 6, "leave it out, or say 'scaling: strong'"),
        # what the contract refuses, at the line of the key that its words name first
        ("epochs: 10", "epochs: 10\nghost_batch: 8", 6, "ghost_batch has no effect with norm"),
        ("gpus: [1, 2]", "gpus: [2, 3]\n  reduction: adasum", 10,
         "gpus must be a power of two, found 3: use 2 or 4 (cell: gpus=3, reduction=adasum, tech"),
        ("base_lr: 0.01", "warmup_epochs: 11", 24, "warmup_epochs 11 are more than the run"),
    ],
)  # fmt: skip
def test_what_is_refused(old: str, new: str, line: int, said: str) -> None:
    assert old in GOOD
    text = refusal(load, GOOD.replace(old, new, 1))
    assert said in text
    assert f"mine.yaml:{line}:" in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_per_rank": 24}, "gpus 1 x batch_per_rank 24: use a multiple of 24, or exclude"),
        ({"accumulation": 3}, "cannot be made of gpus 1 x accumulation 3"),
        ({"batch_per_rank": 16, "accumulation": 2}, "batch_per_rank 16 x accumulation 2: use 32"),
        ({"global_batch": "128"}, "global_batch: expected a whole number from 1 on, found '128'"),
        ({"exclude": [{"gpus": 1}]}, "the exclude rules drop every cell"),
        ({"accumulation": 0}, "accumulation: expected a whole number from 1 on, found 0"),
    ],
)
def test_what_is_refused_of_a_global_batch(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(load, {**STRONG, "gpus": 1, **changes})


@pytest.mark.parametrize("part", ["matrix", "zip", "exclude", "include", "override"])
def test_parts_of_the_wrong_shape(part: str) -> None:
    for value in ("5", "[5]", "[[]]", "[{}]"):
        text = refusal(load, f"dataset: digits\n{part}: {value}\n")
        assert "mine.yaml:2:" in text and "expected 'key: value'" in text


def test_every_field_of_the_contract_is_a_key() -> None:
    fields = {*RunConfig.model_fields, *Technique.model_fields} - {"schema_version", "name"}
    assert set(CELL_KEYS) == fields | {"global_batch"}
    assert len(set(TOP_LEVEL)) == len(TOP_LEVEL)
    unset = {**dict.fromkeys(CELL_KEYS), **COMMON, **NEEDED}
    assert load(unset).configs == load({**COMMON, **NEEDED}).configs


def test_values_that_json_would_write_in_another_way() -> None:
    (config,) = load({
        **COMMON, **NEEDED, "data_fraction": 1, "warmup_epochs": 0, "regime_adaptation": True,
        "schedule": {"name": "step", "milestones": [0.25, 0.5]}, "clip_norm": 1,
        "optimizer": {"name": "lamb", "exclude": []},
        "target": {"train_accuracy": 0.75, "within_s": 240},
    }).configs  # fmt: skip
    assert config == RunConfig.model_validate_json(config.model_dump_json(), strict=True)


def test_two_cells_with_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunConfig, "cell_id", lambda self: f"cell-{self.gpus}")
    with pytest.raises(ConfigError, match="two different cells have the id cell-1"):
        load({**COMMON, "matrix": {"gpus": [1], "technique": ["naive", "sgd"]}})
