"""Horovod's own timeline of the one-graph step: what is sent while the backward pass goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.bench.hosts import run_ranks

FORMS = str(Path(__file__).with_name("forms.py"))


@pytest.mark.ranks2
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_large_gradient_is_added_up_before_the_backward_pass_ends(tmp_path: Path) -> None:
    """Its all-reduce is over before the group of small gradients is asked for, whose last member
    the end of the pass brings. Network of two convolutions: the largest gradient, of the dense
    layer behind them, is there first."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 cores")
    # none where a step serialises; all on quiet cores, fewer where ranks wait for a core
    assert any(steps_that_overlap(tmp_path / f"{run}.json") >= 2 for run in range(6))


def steps_that_overlap(file: Path) -> int:
    command = [FORMS, "cnn", "synthetic", "128", "8", "1", str(file.parent), "deterministic", "1"]
    run_ranks(command, 2, HOROVOD_TIMELINE=str(file))
    events = json.loads(file.read_text())
    names = {e["pid"]: e["args"]["name"] for e in events if "name" in e.get("args", {})}

    def begins(of: str, what: str) -> list[int]:
        return [
            e["ts"] for e in events
            if e["ph"] == "B" and e["name"] == what and names[e["pid"]].startswith(of)
        ]  # fmt: skip

    added_up = begins("gradients_4_", "ALLREDUCE")
    last_is_there = begins("gradients_8_1of", "NEGOTIATE_ALLREDUCE")
    assert len(added_up) == len(last_is_there) > 0
    return sum(a < b for a, b in zip(added_up[1:], last_is_there[1:], strict=True))
