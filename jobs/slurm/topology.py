"""Which nodes hang on which leaf switch, as Slurm's topology plugin knows it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from jobs.slurm.facts import Ask

TOPOLOGY = ("scontrol", "show", "topology")


def leaves(ask: Ask, nodes: Iterable[str]) -> dict[str, str]:
    """Node -> leaf switch, of those ``nodes`` that have one; empty where Slurm knows no switches.

    Raises:
        SlurmError: Slurm does not answer.
    """
    wanted, found = set(nodes), {}
    for switch, names in read_leaves(ask(TOPOLOGY)):
        for node in ask(("scontrol", "show", "hostnames", names)).split():
            if node in wanted:
                found[node] = switch
    return found


def read_leaves(text: str) -> list[tuple[str, str]]:
    """Switches of level 0 and their nodes, in Slurm's own short form."""
    found = []
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        if fields.get("Level") == "0" and "SwitchName" in fields and "Nodes" in fields:
            found.append((fields["SwitchName"], fields["Nodes"]))
    return found
