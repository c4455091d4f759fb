"""One small sweep in which something of everything happened, for the tests of whole reports."""

from __future__ import annotations

from pathlib import Path

from tests.analysis.builders import config, failed, record, write_sweep
from train.record import RunRecord

HOSTILE = "rank 1 said <script>alert('x')</script> | & **died** [here](http://evil.example)"
ACCURACIES = {
    ("naive", 1): (0.80, 0.82),
    ("naive", 2): (0.70, 0.74),
    ("lamb", 1): (0.81, 0.83),
    ("lamb", 2): (0.90, 0.92),
}


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
