"""Cells that scripted ranks play in the process of the test, and of which nothing stays behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.cell.lock import is_running
from jobs.cell.ranks import end_leftovers
from jobs.local.supervisor import Ranks
from tests.builders import config
from tests.jobs.local.scripted import Trial, lay, stage

Sweep = Callable[..., Trial]


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    """``sweep(body, *gpus)``: cells of these rank counts, whose ranks play ``body``."""
    monkeypatch.setattr(Ranks, "grace_s", 0.5)
    trials = []

    def make(body: str, *gpus: int, folder: Path | None = None) -> Trial:
        scene = stage(tmp_path / "a 'stage'", body)
        monkeypatch.setattr(sys, "executable", scene.python)
        configs = [config(gpus=n, seed=seed) for seed, n in enumerate(gpus or (2,))]
        trials.append(lay(scene, folder or tmp_path / 'results of\n a "test"' / "trial", configs))
        return trials[-1]

    yield make
    for trial in trials:
        for cell in trial.cells:
            end_leftovers(cell)
            assert not is_running(cell), "nobody may hold it any more"
