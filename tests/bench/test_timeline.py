"""Horovod's own timeline of the one-graph step: what is sent while the backward pass goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.hosts import run_ranks

FORMS = str(Path(__file__).with_name("forms.py"))


@pytest.mark.ranks2
@pytest.mark.slow
def test_large_gradients_are_added_up_before_the_backward_pass_ends(tmp_path: Path) -> None:
    """The last message, the group of small gradients, is asked for when the pass is over."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 cores")
    file = tmp_path / "timeline.json"
    command = [FORMS, "cnn", "synthetic", "128", "1", "1", str(tmp_path), "deterministic", "1"]
    run_ranks(command, 2, HOROVOD_TIMELINE=str(file))
    print(file.read_text()[:6000])
