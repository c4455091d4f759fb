"""Sweeps as topics have them, for tests: of records, of cells that are lost, of unknown ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.page.report import Report, build
from analysis.records.columns import KNOWN_OF_LOST, PLANNED
from analysis.records.frames import Frames
from analysis.table import frame, types
from analysis.topics.topic import Sweep
from tests.analysis.builders import config, frames_of_records, record, runs_frame
from train.config.run import RunConfig
from train.record.run import RunRecord


def planned(
    records: Sequence[RunRecord], *, lost: Sequence[RunConfig] = (), unknown: int = 0
) -> pd.DataFrame:
    """``lost``: cells without a usable record; ``unknown``: how many have no readable config."""
    wanted = types(PLANNED)
    runs = runs_frame([*records, *map(record, lost)])
    cells = runs.assign(state="usable", known=True)[list(wanted)].astype(wanted)
    cells.loc[len(records) :, "state"] = "missing"
    cells.loc[len(records) :, list(KNOWN_OF_LOST)] = pd.NA
    gone = [{"cell_id": f"gone-{i}", "state": "unreadable", "known": False} for i in range(unknown)]
    return frame([*cells.to_dict(orient="records"), *gone], PLANNED)


def sweep(
    records: Sequence[RunRecord], *, lost: Sequence[RunConfig] = (), unknown: int = 0,
    techniques: Sequence[str] = ("naive", "lamb"),
) -> Sweep:  # fmt: skip
    """What topics are made from; ``lost``, ``unknown``: see :func:`planned`."""
    plan = planned(records, lost=lost, unknown=unknown)
    parsed = [
        one.technique.model_dump(mode="json") for one in (*(r.config for r in records), *lost)
    ]
    return Sweep(
        Frames(
            Path(), "s", "A sweep for the tests", tuple(techniques), planned=plan,
            **frames_of_records(records), problems=(), unplanned=(),
            settings=dict(zip(plan["technique_settings"], parsed, strict=False)),
        )
    )  # fmt: skip


def arm(name: str, accuracies: Sequence[float], diverged: int = 0, **changes) -> list[RunRecord]:
    """Runs of two ranks, one per seed; the first ``diverged`` of them diverge."""
    return [
        record(
            config(name, **{"gpus": 2, "seed": seed, **changes}),
            accuracies=[0.1, 0.2, accuracy],
            status="diverged" if seed < diverged else "completed",
        )
        for seed, accuracy in enumerate(accuracies)
    ]


def seeds(name: str, count: int, **changes) -> list[RunConfig]:
    """Configs of as many seeds."""
    return [config(name, **{"gpus": 2, "seed": seed, **changes}) for seed in range(count)]


def report(records: Sequence[RunRecord], *, draw: bool = False, **plan: Any) -> Report:
    """The report of a sweep, see :func:`sweep`; its techniques are those of the records."""
    techniques = dict.fromkeys(item.config.technique.name for item in records)
    return build(sweep(records, **{"techniques": [*techniques], **plan}).frames, draw=draw)


def answers(records: Sequence[RunRecord], **plan: Any) -> dict[str, str]:
    """Key -> text of the answer, or of several answers with | between them."""
    found: dict[str, str] = {}
    for one in report(records, **plan).answers:
        found[one.key] = f"{found[one.key]} | {one.text}" if one.key in found else one.text
    return found
