"""One small sweep in which something of everything happened, for the tests of whole reports."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.builders import classification, config, failed, record, technique, write_sweep
from train.config.run import Target
from train.config.schedule import CropFlip, Grow
from train.record.measurements import NoiseScale, TargetOutcome, TrustRatios
from train.record.run import RunRecord

HOSTILE = "rank 1 said <script>alert('x')</script> | & **died** [here](http://evil.example)"
ACCURACIES = {
    ("naive", 1): (0.80, 0.82),
    ("naive", 2): (0.70, 0.74),
    ("lamb", 1): (0.81, 0.83),
    ("lamb", 2): (0.90, 0.92),
}
TRUST = TrustRatios(
    median=0.02, smallest=0.001, largest=0.9, clipped_share=0.25, layers=(0.004, 0.02, 0.3)
)
NOISE = NoiseScale(
    steps=10, batch_small=16, batch_big=32, trace=5.0, gradient_sq=0.05, interval="measured",
    b_simple=100.0, low=80.0, high=125.0,
)  # fmt: skip
CLASSES = classification(((160, 40), (16, 144)), ("cat", "dog"))


def good_records() -> list[RunRecord]:
    """Two techniques, one and two ranks, two seeds; the throughput differs a little by seed."""
    return [
        record(
            config(name, gpus=gpus, seed=seed),
            accuracies=[0.3, 0.5, accuracy],
            images_per_s=100.0 * gpus * (1 - 0.05 * (gpus - 1)) + seed,
        )
        for (name, gpus), found in ACCURACIES.items()
        for seed, accuracy in enumerate(found)
    ]


def good_sweep(folder: Path) -> Path:
    return write_sweep(folder, good_records())


def mixed_sweep(folder: Path) -> Path:
    """Also a diverged, a failed, a rejected, an unreadable, a missing and an unplanned cell."""
    items = [
        *good_records(),
        record(config(gpus=2, seed=2), status="diverged", accuracies=[0.2, None]),
        failed(config(gpus=2, seed=3), what=HOSTILE, log_tail=("a <b>bold</b> end",)),
        record(config(gpus=2, seed=4), epoch_changes={"images": 300}),
        record(config(gpus=2, seed=5)),
    ]
    unplanned = record(config(gpus=1, seed=9))
    write_sweep(folder, items, also_planned=["digits-cnn-lamb-g4-s0-000000"], unplanned=[unplanned])
    broken = folder / items[-1].cell_id / "record.json"
    broken.write_text(broken.read_text()[:200])
    return folder


def rich_sweep(folder: Path) -> Path:
    """Whatever only some sweeps have: two frameworks, a batch that grows, alarms, skipped steps,
    trust ratios, gains, noise scales, targets, classes."""
    crops = CropFlip(crop=1, flip="none")
    growth = Grow(milestones=(0.3,), factor=2, largest=160)
    grows = technique("grow", batch_growth=growth, augmentation=crops)
    items = [
        *(
            record(
                config(gpus=2, seed=seed, framework=framework),
                accuracies=[0.3, 0.5, 0.8 + seed / 200 + shift],
                images_per_s=rate + 3 * seed,
                epoch_changes={"noise": NOISE} if framework == "horovod" else {},
                alarms=("the ranks train on the same images",) if seed == 2 else (),
                classification=CLASSES,
            )
            for framework, rate, shift in (
                ("horovod", 200.0, 0.0), ("multi_worker_mirrored", 150.0, 0.002)
            )
            for seed in range(3)
        ),
        *(
            record(
                config("lars", gpus=2, seed=seed),
                accuracies=[0.3, 0.6, 0.85 + seed / 100],
                epoch_changes={"trust": TRUST, "skipped_steps": seed},
                adapted=("conv0/kernel:0", "conv1/kernel:0", "classes/kernel:0"),
            )
            for seed in range(3)
        ),
        record(
            config("grow", gpus=2, technique=grows),
            epoch_changes=[{"accumulation": times} for times in (1, 2, 2)],
        ),
        record(
            config(gpus=2, technique=technique("adascale", lr_scaling="adascale")),
            epoch_changes=[{"gain": gain} for gain in (1.0, 1.5, 1.75)],
        ),
        record(
            config("naive", gpus=2, accumulation=4, target=Target(validation_accuracy=0.3)),
            accuracies=[0.35, 0.4],
            epoch_changes={"train_s": 2.0},
            throughput=None,
            target=TargetOutcome(met=True, epoch=2, steps=4, images=512, seconds=5.0, why="held"),
        ),
    ]  # fmt: skip
    return write_sweep(folder, items, techniques=("naive", "lars", "grow", "adascale"))
