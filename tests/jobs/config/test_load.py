"""From a sweep file to configs: against a brute-force reference, and what it refuses."""

from __future__ import annotations

import json
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.load import load_sweep
from jobs.config.sweep import Sweep
from jobs.config.techniques import load_techniques
from train.config.optimizer import Sgd
from train.config.run import RunConfig, Target
from train.errors import ConfigError

COMMON = {"dataset": "digits", "model": "cnn", "epochs": 4, "batch_per_rank": 32}
VALUES: dict[str, list[Any]] = {
    "gpus": [1, 2, 4],
    "technique": ["naive", "batch_norm", "lr_scaling", "sgd"],
    "seed": [0, 1, 2],
    "base_lr": [0.1, 0.01],
    "data_fraction": [0.5, 1.0],
}
ROWS = load_techniques()
NEEDED = {"gpus": 1, "technique": "naive"}  # for cells whose axes lack one of these


def load(content: dict[str, Any]) -> Sweep:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mine.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return load_sweep(str(path))


def refusal(content: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        load(content)
    return str(caught.value)


def seen(config: RunConfig) -> dict[str, Any]:
    """The keys that these tests vary, read back from a config."""
    return {
        "gpus": config.gpus,
        "technique": config.technique.name,
        "seed": config.seed,
        "base_lr": config.technique.base_lr,
        "data_fraction": config.data_fraction,
    }


# --- the reference: one loop per key, one test per rule -----------------------------------------


def filled(cell: dict[str, Any]) -> dict[str, Any]:
    row = ROWS[cell["technique"]]
    return {"seed": 0, "base_lr": row.fields["base_lr"], "data_fraction": 1.0, **cell}


def combinations(lists: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(lists, chosen, strict=True)) for chosen in product(*lists.values())]


def fits(rule: dict[str, Any], cell: dict[str, Any]) -> bool:
    return all(filled(cell)[key] in values for key, values in rule.items())


def reference(content: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The cells in order; None where the file is to be refused."""
    crossed = [
        {k: v for k, v in content.items() if k in VALUES} | cell
        for cell in combinations(content.get("matrix", {}))
    ]
    rules = content.get("exclude", [])
    if not all(any(fits(rule, cell) for cell in crossed) for rule in rules):
        return None
    cells = [cell for cell in crossed if not any(fits(rule, cell) for rule in rules)]
    entries = content.get("include", [])
    groups = [combinations(entry) for entry in entries]
    written = cells + [cell for group in groups for cell in group]
    final = [dict(cell) for cell in written]
    for rule in content.get("override", []):
        hits = [i for i, cell in enumerate(written) if fits(rule["when"], cell)]
        if not hits:
            return None
        for i in hits:
            final[i] |= rule["set"]
    unique: list[dict[str, Any]] = []
    news = []
    for i, cell in enumerate(final):
        if filled(cell) not in unique:
            unique.append(filled(cell))
            news.append(i)
    start = len(cells)
    for group in groups:
        if not any(start <= i < start + len(group) for i in news):
            return None
        start += len(group)
    return unique or None


def some_lists(*, single: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Some keys, each with some of its values."""
    some = {
        key: st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
        for key, values in VALUES.items()
    }
    picked = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4, unique=True)
    whole = picked.flatmap(lambda keys: st.fixed_dictionaries({key: some[key] for key in keys}))
    return whole.map(lambda d: {k: v[0] for k, v in d.items()}) if single else whole


SWEEPS = st.fixed_dictionaries(
    {"matrix": some_lists()},
    optional={
        "exclude": st.lists(some_lists(), max_size=2),
        "include": st.lists(some_lists(), max_size=2),
        "override": st.lists(
            st.fixed_dictionaries({"when": some_lists(), "set": some_lists(single=True)}),
            max_size=2,
        ),
    },
)


@settings(max_examples=150, deadline=None)
@given(SWEEPS)
def test_cells_are_those_of_the_brute_force_reference(parts: dict[str, Any]) -> None:
    entries = [
        entry | {key: [value] for key, value in NEEDED.items() if key not in entry}
        for entry in parts.get("include", [])
    ]
    defaults = {key: value for key, value in NEEDED.items() if key not in parts["matrix"]}
    content = {**defaults, **parts, "include": entries}
    expected = reference(content)
    if expected is None:
        with pytest.raises(ConfigError):
            load({**COMMON, **content})
        return
    sweep = load({**COMMON, **content})
    assert [seen(config) for config in sweep.configs] == expected
    ids = [config.cell_id() for config in sweep.configs]
    assert len(set(ids)) == len(ids)


# --- one part at a time -------------------------------------------------------------------------


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


def test_one_cell_needs_no_matrix_and_include_can_stand_alone() -> None:
    (config,) = load({**COMMON, **NEEDED, "dataset": "folder:/data/Cats", "image_size": 32}).configs
    assert (config.dataset, config.image_size) == ("folder:/data/Cats", 32)
    sweep = load({**COMMON, "include": [{"technique": "naive", "gpus": [1, 2]}]})
    assert [c.gpus for c in sweep.configs] == [1, 2]


def test_techniques_keep_the_order_of_the_file_not_of_the_cells() -> None:
    content = {
        **COMMON,
        "matrix": {"gpus": [1, 2], "technique": ["naive", "lr_scaling", "batch_norm"]},
        "exclude": [{"technique": "lr_scaling", "gpus": 1}],
        "include": [{"technique": "sgd", "gpus": 1}],
        "override": [{"when": {"technique": "sgd"}, "set": {"technique": "lamb"}}],
    }
    assert load(content).techniques == ("naive", "lr_scaling", "batch_norm", "lamb")


def test_parameters_of_a_technique_can_be_shared_varied_and_overridden() -> None:
    content = {
        **COMMON, "gpus": 1, "schedule": "cosine",
        "matrix": {"technique": ["naive", "sgd"], "base_lr": [0.1, 0.2]},
        "override": [
            {"when": {"optimizer": "sgd"}, "set": {"optimizer": {"momentum": 0.5}}},
            {"when": {"base_lr": 0.2, "optimizer": {"nesterov": True}}, "set": {"base_lr": 0.4}},
        ],
    }  # fmt: skip
    techniques = [config.technique for config in load(content).configs]
    assert {technique.schedule.name for technique in techniques} == {"cosine"}
    assert [(technique.name, technique.base_lr) for technique in techniques] == [
        ("naive", 0.1), ("naive", 0.2), ("sgd", 0.1), ("sgd", 0.4),
    ]  # fmt: skip
    assert techniques[2].optimizer == Sgd(momentum=0.5, nesterov=True)
    assert techniques[0].optimizer.name == "adam"


def test_parts_with_keys_of_their_own_are_values_like_any() -> None:
    target = {"train_accuracy": 0.75, "within_s": 240}
    plain, timed = load({
        **COMMON, **NEEDED, "matrix": {"target": [None, target]},
        "override": [{"when": {"target": target}, "set": {"clip_norm": 1}}],
    }).configs  # fmt: skip
    assert (plain.target, plain.technique.clip_norm) == (None, None)
    assert (timed.target, timed.technique.clip_norm) == (Target(**target), 1.0)


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


def test_weak_and_strong_in_one_sweep_with_null() -> None:
    content = {
        "dataset": "digits", "model": "cnn", "epochs": 4, "technique": "naive",
        "matrix": {"gpus": [1, 2]},
        "zip": [
            {"scaling": ["weak", "strong"], "batch_per_rank": [32, None],
             "global_batch": [None, 64]},
        ],
    }  # fmt: skip
    batches = [(c.scaling, c.gpus, c.batch_per_rank) for c in load(content).configs]
    assert batches == [("weak", 1, 32), ("strong", 1, 64), ("weak", 2, 32), ("strong", 2, 32)]


@pytest.mark.parametrize("rule", [{"lr_scaling": "linear"}, {"regime_adaptation": True}])
def test_a_rule_needs_a_base_where_the_batch_is_an_axis(rule: dict[str, Any]) -> None:
    """Each batch would be its own base, and the rule would never act."""
    strong = {key: value for key, value in STRONG.items() if key != "global_batch"} | {"gpus": 1}
    content = {**strong, "matrix": {"global_batch": [32, 64]}}
    text = refusal({**content, **rule})
    assert "global_batch changes between cells and technique naive goes by it" in text
    assert "say the global batch that base_lr belongs to, e.g. base_batch: 32" in text
    weak = {"scaling": "weak", "matrix": {"batch_per_rank": [16, 32]}}
    assert "batch_per_rank changes between cells" in refusal({**strong, **rule, **weak})
    assert len(load({**content, **rule, "base_batch": 32}).configs) == 2
    own = {"zip": [{"global_batch": [32, 64], "base_batch": [32, 64]}]}
    assert len(load({**strong, **rule, **own}).configs) == 2
    assert len(load(content).configs) == 2


@pytest.mark.parametrize("left_out", ["clip_norm", "warmup_epochs"])
def test_noise_without_a_clip_and_a_warm_up_is_refused_as_a_sweep_only(left_out: str) -> None:
    noisy = {"noise_batch": 8, "clip_norm": 1.0, "warmup_epochs": 1, "warmup_from": "zero"}
    content = {**COMMON, **NEEDED, **noisy}
    stored = load(content).configs[0].model_dump(mode="json")
    del content[left_out], stored["technique"][left_out]
    text = refusal(content)
    assert "noise_batch 8 multiplies the gradients of" in text and "set clip_norm, e.g. 1.0" in text
    assert RunConfig.model_validate_json(json.dumps(stored)).technique.noise_batch == 8


MATRIX = {"gpus": [1, 2], "technique": ["naive", "lamb"]}
MADE_OF = {"scaling": "strong", "global_batch": 128}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        # rules that match nothing
        ({"exclude": [{"technique": "sgd"}]}, "mine.yaml:13: this exclude rule matches none of the "
         "4 cells: technique is never sgd (it is naive, lamb)"),
        (
            {"exclude": [{"gpus": 1}, {"technique": "naive"}, {"gpus": 1, "base_lr": 0.005}],
             "override": [{"when": {"gpus": 1, "base_lr": 0.005}, "set": {"epochs": 5}}]},
            "override rule matches none of the 1 cells: gpus is never 1 (it is 2)",
        ),
        ({"exclude": [{"technique": "naive", "lr_scaling": "sqrt"}]}, "none has all of it at once"),
        ({"exclude": [{"image_size": 32}]}, "image_size is never 32 (it is null)"),
        ({"include": [{"technique": "naive", "gpus": 2}]}, "adds no cell"),
        # no cell, too many
        ({"exclude": [{"gpus": [1, 2]}]}, "drop every cell"),
        ({"matrix": {**MATRIX, "seeds": 2501}}, "10,004 cells, 10,000 are allowed"),
        ({"matrix": {**MATRIX, "seeds": 10**12}}, "10,000 are allowed"),
        # cells that are incomplete or at odds with themselves
        ({"epochs": None}, "'epochs' is missing"),
        ({"batch_per_rank": None}, "'batch_per_rank' is missing: scaling: weak fixes it"),
        ({"scaling": "strong"}, "'global_batch' is missing: scaling: strong fixes it"),
        ({"global_batch": 64}, "leave it out, or say 'scaling: strong'"),
        ({**MADE_OF, "batch_per_rank": 24}, "global_batch 128 cannot be made of gpus 1 x "
         "batch_per_rank 24: use 120 or 144, or exclude the cell"),
        ({**MADE_OF, "batch_per_rank": None, "accumulation": 3}, "accumulation 3: use 126 or 129"),
        ({**MADE_OF, "batch_per_rank": 16, "accumulation": 2},
         "cannot be made of gpus 1 x batch_per_rank 16 x accumulation 2: use 32, or"),
        # what the contract refuses, at the line of the key that its words name first
        ({"image_size": 32}, "mine.yaml:12: image_size is for folder:PATH; digits has its own"),
        ({"ghost_batch": 8}, "mine.yaml:12: ghost_batch 8 has no effect with norm"),
        ({"reduction": "adasum", "matrix": {"gpus": [2, 3], "technique": ["naive"]}},
         "gpus must be a power of two, found 3: use 2 or 4 (cell: gpus=3"),
        ({"optimizer": {"nam": 1}}, "mine.yaml:12: optimizer.adam: unknown key 'nam'; did you"),
        ({"technique": "lamb", "matrix": {"gpus": [1]}, "optimizer": {"exclude": "bias"}},
         'optimizer.lamb.exclude: expected a list, such as [a, b], found "bias"'),
        ({"optimizer": {"beta_1": "0.9"}}, "optimizer.adam.beta_1: expected a number, without"),
    ],
)  # fmt: skip
def test_what_is_refused(changes: dict[str, Any], said: str) -> None:
    text = refusal({**COMMON, "matrix": MATRIX, **changes})
    assert said in text
    assert "mine.yaml:" in text


def test_messages_name_the_line_that_is_to_blame_and_the_cell() -> None:
    matrix = {"gpus": [1, 2], "technique": ["naive", "lr_scaling_warmup"], "epochs": [4, 2]}
    text = refusal({"dataset": "digits", "model": "cnn", "batch_per_rank": 32, "matrix": matrix})
    assert "mine.yaml:13: warm-up of 3 epochs (warmup_epochs) is longer than the run (2 ep" in text
    assert "(cell: gpus=1, technique=lr_scaling_warmup, epochs=2)" in text


def test_two_cells_with_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunConfig, "cell_id", lambda self: f"cell-{self.gpus}")
    with pytest.raises(ConfigError, match="two different cells have the id cell-1"):
        load({**COMMON, "matrix": {"gpus": [1], "technique": ["naive", "sgd"]}})


def test_names_and_paths(tmp_path: Path) -> None:
    text = yaml.safe_dump({**COMMON, **NEEDED})
    for name in ("one.yaml", "two.yml"):
        (tmp_path / name).write_text(text)
    assert load_sweep("one", tmp_path).source == tmp_path / "one.yaml"
    assert load_sweep("two", tmp_path) == load_sweep(str(tmp_path / "two.yml"))
    with pytest.raises(ConfigError, match=r"unknown sweep 'onee'; did you mean 'one'\? known: one"):
        load_sweep("onee", tmp_path)
    with pytest.raises(ConfigError, match=r"unknown sweep '.*three\.yaml'; known: one, two"):
        load_sweep(str(tmp_path / "three.yaml"), tmp_path)
    with pytest.raises(ConfigError, match="directory"):
        load_sweep(f"{tmp_path}/")


def test_ten_thousand_cells_take_about_a_second() -> None:
    rates = [round(0.001 * i, 3) for i in range(1, 51)]
    matrix = {"gpus": [1, 2, 4, 8], "technique": VALUES["technique"], "base_lr": rates}
    began = time.process_time()
    assert len(load({**COMMON, "matrix": {**matrix, "seeds": 12}}).configs) == 9600
    assert time.process_time() - began < 5  # about 0.5 on an idle core
