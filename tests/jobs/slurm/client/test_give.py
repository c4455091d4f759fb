"""Root gives results to the practice user, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.slurm.client.detect import give

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_links_are_given_and_never_what_they_lead_to(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").touch()
    given = tmp_path / "given"
    (given / "deep").mkdir(parents=True)
    (given / "deep" / "file").touch()
    (given / "link").symlink_to(mine)
    (given / "deep" / "link").symlink_to(mine / "file")
    give(given, 65534, 65534)
    owned = [p.lstat().st_uid for p in (given, *given.rglob("*"))]
    assert owned == [65534] * 5
    assert mine.stat().st_uid == (mine / "file").stat().st_uid == 0
