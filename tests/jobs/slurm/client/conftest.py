"""Fakes of Slurm's programs, first on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.slurm.fakes import FakeSlurm, fake_slurm


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    found = fake_slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", found.path)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    return found
