"""Switches as scontrol tells them: the text of Slurm's own documentation for topology/tree."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jobs.slurm.client.nodes import leaves, read_leaves
from jobs.slurm.client.run import SlurmError

TREE = """SwitchName=s0 Level=0 LinkSpeed=1 Nodes=tux[0-1]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=tux[2-3]
SwitchName=s2 Level=1 LinkSpeed=1 Nodes=tux[0-3] Switches=s[0-1]
"""
HOSTS = {"tux[0-1]": "tux0\ntux1\n", "tux[2-3]": "tux2\ntux3\n"}


def test_leaves_and_not_the_spine() -> None:
    def ask(argv: Sequence[str]) -> str:
        return TREE if argv[2] == "topology" else HOSTS[argv[3]]

    assert leaves(ask) == {"tux0": "s0", "tux1": "s0", "tux2": "s1", "tux3": "s1"}


@pytest.mark.parametrize("text", ["", "No topology information available\n", "x=1 y"])
def test_no_switches(text: str) -> None:
    assert read_leaves(text) == []


def test_a_refusal_is_no_switch_and_silence_is_told() -> None:
    def ask(passing: bool):
        def question(argv: Sequence[str]) -> str:
            raise SlurmError("scontrol show topology", "no", passing=passing)

        return question

    assert leaves(ask(False)) == {}
    with pytest.raises(SlurmError):
        leaves(ask(True))
