"""Who works on a sweep's folder, also where locks do not reach from one machine to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.lock import only_sweep
from train.errors import ConfigError


def test_another_machine_that_did_not_sign_off_is_believed(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 7 on login2")
    with pytest.raises(ConfigError, match=r"login2.*remove that file"), only_sweep(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "process 7 on login2"


def test_a_sweep_signs_off(tmp_path: Path) -> None:
    with only_sweep(tmp_path):
        assert (tmp_path / ".lock").read_text().startswith("process ")
    assert (tmp_path / ".lock").read_text() == ""


def test_one_that_was_killed_here_does_not_matter(tmp_path: Path) -> None:
    with only_sweep(tmp_path):
        left = (tmp_path / ".lock").read_text()
    (tmp_path / ".lock").write_text(left)
    with only_sweep(tmp_path):
        pass
