"""NODES=: how many nodes, or which ones."""

from __future__ import annotations

from typing import NamedTuple

from jobs.slurm.commands import SlurmError
from jobs.slurm.facts import Ask
from jobs.suggest import nearest
from train.config import ConfigError

ALL_NODES = ("sinfo", "--noheader", "--all", "--Node", "--format=%N")


class Wanted(NamedTuple):
    """names: in Slurm's own form, as node[1-3]; None: any."""

    number: int
    names: str | None = None


def read_nodes(text: str, ask: Ask) -> Wanted:
    """``4``, or names in Slurm's form: ``node3,node[5-8]``.

    Raises:
        ConfigError: neither, or nodes that the cluster does not have.
        SlurmError: Slurm does not answer.
    """
    if text.strip().lstrip("-").isdecimal():
        return Wanted(int(text))
    try:
        names = ask(("scontrol", "show", "hostnames", text)).split()
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
    return Wanted(len(names), text)
