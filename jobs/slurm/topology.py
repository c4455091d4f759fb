"""Which nodes hang on which leaf switch, as Slurm's topology plugin knows it."""

from __future__ import annotations

import re

from jobs.slurm.commands import SlurmError
from jobs.slurm.facts import Ask
from jobs.slurm.nodelist import hostnames

TOPOLOGY = ("scontrol", "show", "topology")


def leaves(ask: Ask) -> dict[str, str]:
    """Node -> leaf switch; empty where Slurm knows no switches, which most sites have not told it.

    Raises:
        SlurmError: Slurm does not answer.
    """
    try:
        text = ask(TOPOLOGY)
    except SlurmError as error:
        if error.passing:
            raise
        return {}  # another topology plugin than tree
    return {node: switch for switch, names in read_leaves(text) for node in hostnames(names, ask)}


def read_leaves(text: str) -> list[tuple[str, str]]:
    """Switches of level 0 and their nodes, in Slurm's own short form."""
    found = []
    for line in text.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        if fields.get("Level") == "0" and "SwitchName" in fields and "Nodes" in fields:
            found.append((fields["SwitchName"], fields["Nodes"]))
    return found
