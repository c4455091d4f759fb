"""Cells that scripted ranks play in the process of the test, and of which nothing stays behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.cell.ranks import end_leftovers
from jobs.cell.state import lay_out
from jobs.local.supervisor import Ranks
from tests.builders import config
from tests.jobs.local.scripted import Trial, stage
from train.record.lock import holder
from train.record.run import SweepManifest

Sweep = Callable[..., Trial]
#: A folder may have any name.
ANY_NAME = 'it\'s "quoted" $HOME `x` ü-%j-*\nnew line, no utf-8 \udce9'


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    """``sweep(body, *gpus)``: cells of these rank counts, or configs, whose ranks play ``body``."""
    monkeypatch.setattr(Ranks, "grace_s", 0.5)
    trials = []

    def make(body: str, *gpus: int, folder: Path | None = None, configs=()) -> Trial:
        ours = [*configs] or [config(gpus=n, seed=seed) for seed, n in enumerate(gpus or (2,))]
        scene = stage(tmp_path / "a 'stage'", body, ours)
        monkeypatch.setattr(sys, "executable", str(scene / "python"))
        trial = Trial(scene, folder or tmp_path / ANY_NAME / "trial", ours)
        names = tuple(cell.name for cell in trial.cells)
        manifest = SweepManifest(name="t", title="t", cells=names, techniques=())
        lay_out(ours, trial.folder, manifest)
        trials.append(trial)
        return trial

    yield make
    for trial in trials:
        for cell in trial.cells:
            end_leftovers(cell)
            assert holder(cell) is None, "nobody may hold it any more"
