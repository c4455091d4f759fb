"""Factory of true RunRecord objects and result folders: what the trainer would leave on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records.frames import frames_of, labelled
from analysis.records.gather import gather
from analysis.records.labels import parsed_settings
from analysis.table import Table
from train.config.optimizer import Sgd
from train.config.plan import RunPlan
from train.config.run import RunConfig
from train.config.schedule import Constant
from train.config.technique import Technique
from train.record.measurements import (
    Classification,
    ClassScore,
    DataRecord,
    EpochRecord,
    RankSteps,
    Spread,
    Throughput,
    ThroughputSample,
)
from train.record.nulls import null_paths
from train.record.run import (
    Attempt,
    Provenance,
    RunError,
    RunRecord,
    Status,
    SweepManifest,
    World,
)

START = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
TRAIN_IMAGES = 320
VALIDATION_IMAGES = 360
REASON = "left out by the test"


def technique(name: str = "naive", **changes: Any) -> Technique:
    fields = {"base_lr": 0.1, "base_batch": 32, "optimizer": Sgd(), "schedule": Constant()}
    return Technique(name=name, **{**fields, **changes})


def config(name: str = "naive", **changes: Any) -> RunConfig:
    fields: dict[str, Any] = {
        "dataset": "digits",
        "model": "cnn",
        "gpus": 1,
        "batch_per_rank": 16,
        "epochs": 3,
        "seed": 0,
        "technique": technique(name),
    }
    return RunConfig(**{**fields, **changes})


def epoch(
    number: int, run: RunConfig, *, train_images: int = TRAIN_IMAGES, **changes: Any
) -> EpochRecord:
    """As planned; the batch follows from ``accumulation``, which a test may set."""
    plans = RunPlan(run, train_images).epochs
    plan = plans[min(number, len(plans)) - 1]
    accumulation = changes.get("accumulation", plan.accumulation)
    batch = run.gpus * run.batch_per_rank * accumulation
    steps = plan.steps if accumulation == plan.accumulation else train_images // batch
    fields: dict[str, Any] = {
        "epoch": number,
        "attempt": 1,
        "global_batch": batch,
        "steps": steps,
        "images": steps * batch,
        "train_s": 2.0,
        "eval_s": 0.5,
        "lr_first": 0.1,
        "lr_last": 0.1,
        "train_loss": 2.0 / number,
        "train_accuracy": 0.5,
        "validation_loss": 2.1 / number,
        "validation_accuracy": 0.4,
        "validation_images": VALIDATION_IMAGES,
        "lr_mean": 0.1,
        "accumulation": accumulation,
    }
    return EpochRecord(**{**fields, **changes})


def world(run: RunConfig, **changes: Any) -> World:
    fields: dict[str, Any] = {
        "size": run.gpus,
        "nodes": 1,
        "hostnames": ("node1",) * run.gpus,
        "device_kind": "cpu",
        "device": "Test CPU",
        "cores_per_rank": 1,
        "oversubscribed": False,
        "launcher": "horoscale",
        "controller": "gloo",
        "data_plane": "gloo",
        "interface": "lo",
    }
    return World(**{**fields, **changes})


def provenance(**changes: Any) -> Provenance:
    fields: dict[str, Any] = {
        "git_commit": "a" * 40,
        "git_dirty": False,
        "image_digest": "sha256:0123",
        "versions": {"tensorflow": "2.15.1", "horovod": "0.28.1"},
        "cpu": "Test CPU",
        "gpu": "none",
        "driver": "none",
        "slurm_job_id": "1",
        "seeds": {"seed": 0},
        "environment": {},
    }
    return Provenance(**{**fields, **changes})


def spread(value: float) -> Spread:
    return Spread(n=1, mean=value, median=value, p05=value, p95=value)


def rank_steps(
    rank: int, total: float = 1.0, waiting: float = 0.1, sending: float = 0.2
) -> RankSteps:
    return RankSteps(
        rank=rank,
        step_s=spread(total),
        input_s=spread(waiting),
        compute_s=spread(total - waiting - sending),
        communication_s=spread(sending),
    )


def classification(
    confusion: Sequence[Sequence[int]], names: Sequence[str], epoch: int = 3
) -> Classification:
    """Scores by their definitions, written out."""
    scores = []
    for i, name in enumerate(names):
        hits, there, said = confusion[i][i], sum(confusion[i]), sum(row[i] for row in confusion)
        scores.append(ClassScore(
            name=name, precision=hits / said if said else None,
            recall=hits / there if there else None,
            f1=2 * hits / (said + there) if said + there else None, support=there,
        ))  # fmt: skip
    matrix = tuple(tuple(row) for row in confusion)
    return Classification(epoch=epoch, classes=tuple(scores), confusion=matrix)


def record(
    run: RunConfig | None = None,
    *,
    status: Status = "completed",
    accuracies: Sequence[float | None] | None = None,
    images_per_s: float | None = 100.0,
    wall_s: float = 60.0,
    world_changes: dict[str, Any] | None = None,
    provenance_changes: dict[str, Any] | None = None,
    epoch_changes: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    missing: dict[str, str] | None = None,
    train_images: int = TRAIN_IMAGES,
    **changes: Any,
) -> RunRecord:
    """A record that the contract accepts; a null gets REASON unless ``missing`` has one.

    ``accuracies``: validation accuracy per epoch; its length is the number of epochs run.
    ``epoch_changes``: for all epochs, or one for each.
    """
    run = run or config()
    planned = len(RunPlan(run, train_images).epochs)
    accuracies = [0.4] * planned if accuracies is None else accuracies
    each = epoch_changes or {}
    each = [each] * len(accuracies) if isinstance(each, dict) else each
    epochs = tuple(
        epoch(i, run, train_images=train_images, **{"validation_accuracy": value, **own})
        for i, (value, own) in enumerate(zip(accuracies, each, strict=True), start=1)
    )
    if images_per_s is not None and not any("train_s" in own for own in each):
        # the seconds that make the samples true
        epochs = tuple(e.model_copy(update={"train_s": e.images / images_per_s}) for e in epochs)
    samples = tuple(
        ThroughputSample(epoch=e.epoch, images_per_s=images_per_s)
        for e in epochs[1:]
        if images_per_s is not None
    )
    end = START + timedelta(seconds=wall_s)
    fields: dict[str, Any] = {
        "cell_id": run.cell_id(),
        "status": status,
        "error": None if status == "completed" else RunError(what="w", where="x", what_to_do="y"),
        "config": run,
        "world": world(run, **(world_changes or {})),
        "data": DataRecord(
            name=run.dataset,
            fingerprint="f" * 64,
            train_images=train_images,
            train_images_available=train_images,
            validation_images=VALIDATION_IMAGES,
            classes=10,
            dropped_per_epoch=train_images % run.global_batch,
            order="partition",
        ),
        "epochs": epochs,
        "steps": tuple(rank_steps(rank) for rank in range(run.gpus)),
        "throughput": Throughput(images_per_s=images_per_s, samples=samples, left_out=(1,)),
        "weights_sha256": "e" * 64,
        "provenance": provenance(**(provenance_changes or {})),
        "attempts": (
            Attempt(number=1, resumed_from_epoch=0, started_at=START, ended_at=end, status=status),
        ),
        "started_at": START,
        "ended_at": end,
    }
    fields |= changes
    return RunRecord(**fields, missing=_reasons(fields, missing or {}))


def _reasons(fields: dict[str, Any], given: dict[str, str]) -> dict[str, str]:
    draft = RunRecord.model_construct(**fields, missing={})
    return dict.fromkeys(null_paths(draft, whole=True), REASON) | given


def failed(run: RunConfig, status: Status = "failed", **error: Any) -> RunRecord:
    """The record that a supervisor writes when no rank left one."""
    fields = {"what": "rank 1 died", "where": "epoch 2", "what_to_do": "see logs/", "rank": 1}
    return record(
        run,
        status=status,
        accuracies=[],
        error=RunError(**{**fields, **error}),
        world=None,
        data=None,
        steps=None,
        throughput=None,
        weights_sha256=None,
        provenance=None,
    )


def write_sweep(
    folder: Path,
    records: Iterable[RunRecord],
    *,
    techniques: Sequence[str] = ("naive", "lamb"),
    also_planned: Sequence[str] = (),
    unplanned: Iterable[RunRecord] = (),
    title: str = "A sweep for the tests",
) -> Path:
    """results/<sweep>/ as jobs and trainer would leave it; returns ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    records = list(records)
    for item in [*records, *unplanned]:
        cell = folder / item.cell_id
        cell.mkdir(exist_ok=True)
        (cell / "config.json").write_text(item.config.model_dump_json())
        (cell / "record.json").write_text(item.model_dump_json(indent=2) + "\n")
    manifest = SweepManifest(
        name=folder.name,
        title=title,
        cells=(*(item.cell_id for item in records), *also_planned),
        techniques=tuple(techniques),
    )
    (folder / "sweep.json").write_text(manifest.model_dump_json(indent=2) + "\n")
    return folder


def frames_of_records(records: Iterable[RunRecord]) -> dict[str, pd.DataFrame]:
    """All frames of these records by name, as they are: nothing is validated."""
    tables = gather(records)
    tables["cells"] = labelled(tables["cells"], parsed_settings(tables["cells"]))
    return frames_of(tables)


def runs_frame(records: Iterable[RunRecord]) -> pd.DataFrame:
    """One row per run, in the order given."""
    return frames_of_records(records)["runs"]


def epochs_frame(records: Iterable[RunRecord]) -> pd.DataFrame:
    """One row per run and epoch."""
    return frames_of_records(records)["epochs"]


def cells(table: Table) -> dict[str, str]:
    """The first row as shown, by heading, and its ``notes``; a mark of a note follows its value."""
    shown = table.shown()
    plain = (cell.replace("\u00a0", " ") for cell in shown.rows[0])
    found = dict(zip([column.heading for column in shown.columns], plain, strict=True))
    return found | {"notes": " ".join(shown.notes)}
