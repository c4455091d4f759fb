"""Horovod's own timeline of the one-graph step: what is sent while the backward pass goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.bench.cases import Case, Contender
from tests.bench.messages import last_turn

#: Longer than it takes to ask for all messages at once.
EARLIER_US = 10_000
CNN = Case("cnn", "cnn", "synthetic", 128, 0.0, 2, (Contender("suite", "1"),))


@pytest.mark.ranks2
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_large_gradient_is_added_up_before_the_backward_pass_ends(tmp_path: Path) -> None:
    """The first all-reduce begins well before the last one is asked for, which the end of the pass
    brings. Network of two convolutions: the largest gradient, of the dense layer behind them, is
    there first."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs 2 cores")
    # none where a step serialises; all on quiet cores, fewer where ranks wait for a core
    assert any(steps_that_overlap(tmp_path / str(run)) >= 2 for run in range(6))


def steps_that_overlap(folder: Path) -> int:
    folder.mkdir()
    sent, steps = last_turn(CNN, CNN.contenders[0], folder)
    each = len(sent) // steps
    taken = [sent[at : at + each] for at in range(0, len(sent), each)]
    return sum(
        min(one.begin for one in step) + EARLIER_US < max(one.asked for one in step)
        for step in taken
    )
