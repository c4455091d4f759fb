"""Faults that are injected into simulated ranks are blamed, through the code that makes records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.topics.scaling.loss import PARTS as LOSSES
from analysis.topics.scaling.loss import largest_cause
from tests.analysis.topics.scaling.test_loss import PARTS, frame, rows, run, seconds
from train.step.result import StepParts
from train.trainer.step_summaries import StepSamples, StepTimes


def simulated(
    gpus: int,
    seed: int,
    *,
    input_s: float = 0.001,
    reduce_s: float = 0.02,
    slow: float = 0.0,
    saved: float = 0.0,
) -> dict[str, Any]:
    """A run through the code that makes records. Half of 0.1 s of computing hides communication;
    rank 0 computes ``slow`` seconds longer, and steps of one call save ``saved`` seconds."""
    random = np.random.default_rng([seed, gpus])
    own: list[list[StepTimes]] = [[] for _ in range(gpus)]
    for step in range(240):
        compute = 0.1 * random.lognormal(0, 0.01, gpus)
        compute[0] += slow
        waits = input_s * random.lognormal(0, 0.1, gpus)
        sampled = step % 12 == 0
        reduced = 0.0 if gpus == 1 else reduce_s * random.lognormal(0, 0.02)
        for rank in range(gpus):
            ready = waits + compute
            waiting = float(ready.max() - ready[rank])
            shows = max(0.0, reduced - 0.05)
            alone = gpus == 1
            round_s = None if alone else 0.002
            measured = reduced + 2 * (round_s or 0.0)
            call = float(compute[rank]) + waiting + (measured if sampled else shows - saved)
            parts = StepParts(None if alone else waiting, round_s, waiting + reduced, 0.01)
            own[rank].append(StepTimes(float(waits[rank]), call, parts if sampled else None))
    ranks = []
    for rank, steps in enumerate(own):
        samples = StepSamples()
        samples.add([])
        for first in range(0, len(steps), 12):
            samples.add(steps[first : first + 12])
        ranks.append(samples.summary(rank))
    assert all(ranks)

    def mean(name: str) -> float | None:
        values = [getattr(rank, name) for rank in ranks]
        known = [v if isinstance(v, float) else v.mean for v in values if v is not None]
        return float(np.mean(known)) if len(known) == len(values) else None

    return run(
        gpus, *(mean(name) for name in PARTS),
        compute_fastest_s=min(rank.compute_s.mean for rank in ranks if rank),
    )  # fmt: skip


def sweep(counts: Sequence[int], runs: int = 3, **faults: float) -> pd.DataFrame:
    """The faults come with the second rank."""
    return frame([
        simulated(gpus, seed, **(faults if gpus > 1 else {}))
        for gpus in counts for seed in range(runs)
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "part", "lost"),
    [
        ({"slow": 0.05}, "waiting", 0.05),
        ({"input_s": 0.06}, "input", 0.059),
        ({"reduce_s": 0.10}, "exposed", 0.05),
    ],
)
def test_an_injected_fault_is_blamed(fault: dict[str, float], part: str, lost: float) -> None:
    (row,) = rows(sweep([1, 4], **fault))
    said = re.fullmatch(
        rf"{LOSSES[part]}, (\d+) % of all that lengthens the step", largest_cause(row)
    )
    assert said and int(said[1]) > 80
    assert seconds(row)[part] == pytest.approx(lost, rel=0.12)
    assert abs(seconds(row)["rest"]) < 0.1 * lost


def test_a_straggler_is_blamed_where_no_communication_shows() -> None:
    """The slowest rank's exposed time is then null, and so is that of the run."""
    runs = sweep([1, 4], slow=0.05, saved=0.01)
    assert runs[runs["gpus"] == 4]["exposed_s"].isna().all()
    (row,) = rows(runs)
    assert largest_cause(row).startswith(f"{LOSSES['waiting']}, ")
    assert "exposed" not in seconds(row)
    assert seconds(row)["rest"] == pytest.approx(-0.01, rel=0.1)
