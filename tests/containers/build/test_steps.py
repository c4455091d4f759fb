"""Steps show signs of life, and their log where they fail."""

from __future__ import annotations

import os
import re

import pytest
import runner
from build import steps as steps_py
from locks import SetupError


def test_a_step_shows_signs_of_life_and_where_it_fails_its_log(
    tmp_path, monkeypatch, capfd
) -> None:
    (tmp_path / "log").touch()
    steps = steps_py.Steps(tmp_path, tmp_path / "log", os.environ)
    monkeypatch.setattr(runner, "SIGN_OF_LIFE_S", 0.2)
    message = r"(?s)testing failed \(exit code 7\)\. Look there\..*no space"
    with pytest.raises(SetupError, match=message):
        steps.run(["sh", "-c", "echo no space; sleep 1; exit 7"], "testing", "Look there.")
    assert re.search(r"testing: \d+ s so far: no space", capfd.readouterr().err)
    with pytest.raises(SetupError, match="cannot start no-such-program"):
        steps.run(["no-such-program"], "testing", "Look there.")
