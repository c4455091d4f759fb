"""Fakes of Slurm's programs; a sweep on the practice cluster that a test may disturb, and what it
broke is healed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.slurm.fakes import FakeSlurm, fake_slurm
from tests.jobs.slurm.sweeping import Sweeping, in_folder
from tests.practice import Practice


@pytest.fixture
def sweeping(cluster: Practice, shared_folder: Path) -> Iterator[Sweeping]:
    with in_folder(cluster, shared_folder) as made:
        yield made


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    slurm = fake_slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", slurm.path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # of lists of jobs
    monkeypatch.setenv("SLURM_CONF", "")  # so that what a command sets does not stay
    monkeypatch.delenv("SLURM_CONF")
    return slurm
