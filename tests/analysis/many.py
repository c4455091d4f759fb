"""Sweeps of thousands of good records, written in seconds: one true record, with other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic_core import to_json

from tests.analysis.builders import (
    VALIDATION_IMAGES,
    classification,
    config,
    record,
    spread,
    technique,
)
from train.config.run import RunConfig
from train.record.measurements import RankSteps
from train.record.run import SweepManifest

EPOCHS = 100
CLASSES = classification(
    [[27 if i == j else 1 for j in range(10)] for i in range(10)],
    [f"class {i}" for i in range(10)], EPOCHS,
)  # fmt: skip


def conditions(count: int, epochs: int = EPOCHS) -> Iterator[RunConfig]:
    """Different configs of one seed: techniques, then ranks, then rates."""
    names, ranks = ("naive", "lamb", "lars", "muon"), (1, 2, 4, 8)
    for number in range(count):
        rest, which = divmod(number, len(names))
        rate, few = divmod(rest, len(ranks))
        of = technique(names[which], base_lr=0.1 * (1 + rate))
        yield config(gpus=ranks[few], batch_per_rank=4, epochs=epochs, technique=of)


def many(folder: Path, count: int, seeds: int, epochs: int = EPOCHS) -> Path:
    """A sweep of ``count`` conditions, each with this number of seeds; returns ``folder``."""
    folder.mkdir(parents=True)
    numbers = np.random.default_rng(0)
    cells = []
    for of in conditions(count, epochs):
        template = _template(of)
        for seed in range(seeds):
            one = of.model_copy(update={"seed": seed})
            cell = one.cell_id()
            cells.append(cell)
            (folder / cell).mkdir()
            told = _changed(template, one, cell, numbers)
            (folder / cell / "record.json").write_bytes(to_json(told, indent=2) + b"\n")
            (folder / cell / "config.json").write_bytes(to_json(told["config"]))
    names = tuple(dict.fromkeys(of.technique.name for of in conditions(count)))
    manifest = SweepManifest(name=folder.name, title="Many", cells=tuple(cells), techniques=names)
    (folder / "sweep.json").write_text(manifest.model_dump_json())
    return folder


def _template(of: RunConfig) -> dict[str, Any]:
    steps = tuple(
        RankSteps(
            rank=rank, step_s=spread(0.1), input_s=spread(0.01), compute_s=spread(0.08),
            communication_s=spread(0.03), update_s=spread(0.01), sampled=EPOCHS, exposed_s=0.01,
            waiting_s=spread(0.005), negotiation_s=spread(0.001),
        )
        for rank in range(of.gpus)
    )  # fmt: skip
    made = record(
        of, wall_s=3600, steps=steps, classification=CLASSES,
        epoch_changes={"gradient_norm": 1.0, "sampled_steps": 1, "sampled_s": 0.1},
        images_per_s=None,
    )  # fmt: skip
    return made.model_dump(mode="json")


def _changed(
    template: dict[str, Any], of: RunConfig, cell: str, numbers: np.random.Generator
) -> dict[str, Any]:
    """Another run of the same condition: its own seconds, losses and accuracies."""
    of_plan = template["epochs"][0]
    epochs = len(template["epochs"])
    seconds = numbers.lognormal(np.log(2), 0.02, epochs).tolist()
    images = of_plan["images"] - of_plan["global_batch"]
    rates = [images / (s - 0.1) for s in seconds]
    progress = np.arange(1, epochs + 1) / epochs
    accuracy = 0.9 - 0.6 * np.exp(-5 * progress) + numbers.normal(0, 0.005, epochs)
    right = np.round(accuracy * VALIDATION_IMAGES).astype(int) / VALIDATION_IMAGES
    loss = (2.3 * np.exp(-3 * progress) * numbers.lognormal(0, 0.01, epochs)).tolist()
    changed = [
        {**epoch, "train_s": s, "train_loss": was, "train_accuracy": min(1.0, now),
         "validation_loss": was * 1.1, "validation_accuracy": held, "gradient_norm": was}
        for epoch, s, was, now, held in zip(
            template["epochs"], seconds, loss, accuracy.tolist(), right.tolist(), strict=True
        )
    ]  # fmt: skip
    samples = [{"epoch": e, "images_per_s": r} for e, r in enumerate(rates[1:], start=2)]
    rate = {"images_per_s": float(np.median(rates[1:])), "samples": samples, "left_out": [1]}
    return {
        **template,
        "cell_id": cell,
        "config": {**template["config"], "seed": of.seed},
        "epochs": changed,
        "throughput": rate,
    }
