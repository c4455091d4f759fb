"""NODES=: how many nodes, or which ones; and which leaf switches they are on."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

from jobs.config.yamlfile import nearest
from jobs.slurm.client.run import SlurmError
from jobs.slurm.client.site import Ask, out_of_use
from train.errors import ConfigError

ALL_NODES = ("sinfo", "--noheader", "--all", "--Node", "--format=%N")
#: For others than who reserved them.
_RESERVED = ("maint", "reserved")
STATES = ("sinfo", "--noheader", "--Node", "--format=%N %T")


class Wanted(NamedTuple):
    """names: with commas; None: any."""

    number: int
    names: str | None = None


def hostnames(text: str, ask: Ask) -> list[str]:
    """Slurm's short form, as node[1-3], one name after another.

    Raises:
        SlurmError: it is not of that form, or Slurm does not answer.
    """
    return ask(("scontrol", "show", "hostnames", text)).split()


def check_in_use(
    wanted: Wanted, partition: str | None, ask: Ask, reservation: str | None = None
) -> None:
    """A sweep waits for nodes that are out of use; whoever looks at a network wants to know now.

    reservation: that the job runs in; reserved nodes may be its own.

    Raises:
        ConfigError: named nodes, or too many others, are down, drained or reserved.
        SlurmError: Slurm does not answer.
    """
    where = () if partition is None else (f"--partition={partition}",)
    lines = ask((*STATES, *where)).splitlines()
    states = dict(line.split(maxsplit=1) for line in lines if line.strip())
    reserved = () if reservation else _RESERVED
    out = {name: state for name, state in states.items()
           if out_of_use(state) or state.startswith(reserved)}  # fmt: skip
    if wanted.names is not None:
        chosen = hostnames(wanted.names, ask)
        bad = [f"{name} is {out[name]}" for name in chosen if name in out]
        if bad:
            raise ConfigError(
                f"NODES={wanted.names}: {', '.join(bad)}; nothing was submitted. Name others, or "
                "bring them back (sinfo -R tells why)"
            )
    elif len(states) - len(out) < wanted.number:
        told = ", ".join(f"{name} {state}" for name, state in sorted(out.items())[:8])
        raise ConfigError(
            f"NODES={wanted.number}: {len(states) - len(out)} of {len(states)} nodes are in use "
            f"by Slurm, the others are out of use ({told}); nothing was submitted. Ask for fewer, "
            "or bring them back (sinfo -R tells why)"
        )


def read_nodes(text: str, ask: Ask) -> Wanted:
    """``4``, or names in Slurm's form: ``node3,node[5-8]``.

    Raises:
        ConfigError: neither, or nodes that the cluster does not have.
        SlurmError: Slurm does not answer.
    """
    with suppress(ValueError):
        return Wanted(int(text))
    try:
        names = hostnames(text, ask)
    except SlurmError as error:
        if error.passing:
            raise
        raise ConfigError(
            f"NODES={text}: expected a number, or names like node3,node[5-8]; scontrol says: "
            f"{error.came}"
        ) from error
    there = set(ask(ALL_NODES).split())
    for name in names:
        if name not in there:
            near = nearest(name, sorted(there))
            hint = f"did you mean {near!r}? " if near else ""
            raise ConfigError(
                f"NODES={text}: unknown node {name!r}; {hint}sinfo -N lists all {len(there)}"
            )
    if not names:
        raise ConfigError(f"NODES={text!r}: expected a number, or names like node3,node[5-8]")
    if len(set(names)) < len(names):
        raise ConfigError(f"NODES={text}: a node is named twice; expected each once")
    return Wanted(len(names), ",".join(names))


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
