"""Sweeps and techniques that are shipped: what they compare, and where numbers come from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from jobs.config.load import load_sweep
from jobs.config.sweep import SWEEPS
from jobs.config.techniques import load_techniques
from jobs.config.yamlfile import names_in
from tests import builders
from train.config.datasets import DATASETS
from train.config.plan import plan_of
from train.config.run import RunConfig, Target
from train.config.technique import Technique
from train.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
#: Of data sets that are no part of the suite: the course's own split of the artists' paintings.
FOLDERS = {"folder:artists": 3181}


@pytest.mark.parametrize("name", names_in(SWEEPS))
def test_every_shipped_sweep_loads_and_has_steps_to_take(name: str) -> None:
    sweep = load_sweep(name)
    assert sweep.name == name
    assert sweep.title != name
    assert set(sweep.techniques) == {config.technique.name for config in sweep.configs}
    images = FOLDERS | {key: facts.train_images for key, facts in DATASETS.items()}
    for config in sweep.configs:
        assert plan_of(config, images[config.dataset]).total_steps >= config.epochs
        assert config.technique.warmup_epochs <= config.epochs / 2


def test_the_course_as_logged_takes_its_steps_at_its_rates() -> None:
    configs = load_sweep("course_as_logged").configs
    told = {
        (c.technique.name, c.gpus, plan.total_steps, plan.warmup_steps, plan.rate(35))
        for c in configs
        for plan in [plan_of(c, 50_000)]
    }
    assert told == {
        ("naive", 1, 72, 0, 0.001), ("naive", 1, 36, 0, 0.001), ("naive", 2, 36, 0, 0.001),
        ("lr_scaling", 1, 36, 0, 0.002), ("lr_scaling", 2, 36, 0, 0.002),
        ("lr_scaling_warmup", 1, 36, 9, 0.002), ("lr_scaling_warmup", 2, 36, 9, 0.002),
        ("lamb", 2, 36, 9, 0.002),
    }  # fmt: skip
    assert {c.partition for c in configs if c.repeats} == {"same"}
    assert sum(c.repeats for c in configs) == 3
    kept = {c.technique.bn_momentum for c in configs if c.technique.normalisation != "none"}
    assert kept == {0.99}
    for name in ("lr_scaling", "lr_scaling_warmup"):
        own = [c for c in configs if c.technique.name == name and c.gpus == 1]
        seeds = {c.seed for c in own if c.technique.bn_statistics == "moving"}
        assert seeds == set(range(10))


def test_the_technique_sweep_emulates_sixteen_ranks() -> None:
    configs = load_sweep("cifar10_techniques").configs
    shapes = {(c.gpus, c.batch_per_rank, c.accumulation, c.global_batch) for c in configs}
    assert shapes == {(2, 256, 1, 512), (2, 256, 8, 4096)}
    assert {c.seed for c in configs} == {0, 1, 2}
    # 20,000 images at least, the courses' 12 epochs, one base for all
    assert {(c.data_fraction * 50_000, c.epochs) for c in configs} == {(20_000, 12)}
    assert {c.technique.base_batch for c in configs} == {256}


#: What a search turns: rates, and the numbers of larc and lars.
KEYS = ["technique", "base_lr", "trust", "rest_rate"]


def turned(sweep: str) -> pd.DataFrame:
    found = [(c.technique, c.technique.optimizer) for c in load_sweep(sweep).configs]
    rows = [(t.name, t.base_lr, getattr(o, "trust", None) if t.name == "larc" else None,
             getattr(o, "rest_rate", None)) for t, o in found]  # fmt: skip
    return pd.DataFrame(rows, columns=KEYS)


def rows_of(frame: pd.DataFrame) -> set[tuple[Any, ...]]:
    plain = frame.astype(object).where(frame.notna(), None)
    return set(plain.itertuples(index=False, name=None))


@pytest.mark.parametrize(
    ("name", "sweep", "searched"),
    [
        ("optimizers", "cifar10_search", ("lamb", "muon", "novograd")),
        ("layerwise", "cifar10_layerwise_search", ("larc", "lars")),
    ],
)
def test_rates_are_the_best_that_were_searched(name: str, sweep: str, searched) -> None:
    """All that the sweep lists was tried, and nothing else, by runs that no comparison shows."""
    log = pd.read_csv(ROOT / "docs" / "searches" / f"{name}.csv")
    keys = [key for key in KEYS if key in log]
    assert rows_of(log[keys]) == rows_of(turned(sweep)[keys])
    assert {c.seed for c in load_sweep(sweep).configs}.isdisjoint({0, 1, 2})
    of_rows = log["technique"].isin(searched) & (log.get("trust", 0) != 0.005)  # not apex's LARC
    best = log.loc[log[of_rows].groupby("technique")["validation_accuracy"].idxmax()]
    used = turned("cifar10_techniques")
    assert rows_of(best[keys]) == rows_of(used.loc[used["technique"].isin(searched), keys])


def test_the_course_s_other_runs() -> None:
    artists = load_sweep("artists").configs
    assert {(c.model, c.batch_per_rank, c.epochs) for c in artists} == {("resnet50", 16, 10)}
    assert {c.gpus for c in artists} == {1, 4, 12}
    wanted = Target(train_accuracy=0.75, validation_accuracy=0.25, held_for=2, within_s=240)
    assert {c.target for c in load_sweep("assessment").configs} == {wanted}
    pairs = {(c.framework, c.gpus) for c in load_sweep("fashion_frameworks").configs}
    assert len(pairs) == 3 * 2


# --- techniques.yaml


def built(name: str, base_batch: int = 64) -> Technique:
    return Technique(name=name, base_batch=base_batch, **load_techniques()[name])


def cell(name: str, **changes: Any) -> RunConfig:
    values = {"dataset": "cifar10", "model": "resnet_mini", "batch_per_rank": 256, "epochs": 12}
    return builders.config(technique=built(name, 256), **(values | changes))


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
        ("tuned", "tuned_any", {"initialisation", "zero_gamma"}),
    ],
)  # fmt: skip
def test_rows_differ_in_what_their_names_say(one: str, other: str, what: set[str]) -> None:
    left, right = built(one).model_dump(), built(other).model_dump()
    assert {key for key in left if left[key] != right[key]} - {"name"} == what


def test_the_page_says_where_each_row_departs_from_its_source() -> None:
    page = (ROOT / "docs" / "techniques.md").read_text()
    table = page.split("## Where rows depart", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(load_techniques())
