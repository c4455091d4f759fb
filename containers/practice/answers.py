"""What Slurm answers about the cluster, asked as any user would."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence

from .place import NODES, Place, PracticeError

READY_S = 180


def slurm_environment(place: Place) -> dict[str, str]:
    """What a caller adds to its environment so that Slurm's commands mean this cluster."""
    return {"SLURM_CONF": str(place.slurm_conf)}


def node_states(place: Place) -> dict[str, str]:
    """State of each node as sinfo tells it, such as idle or down*; empty without an answer."""
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%N %t", "--partition=practice"],
        env=os.environ | slurm_environment(place), capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    if done.returncode != 0:
        return {}
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def controller_answers(place: Place) -> bool:
    return bool(node_states(place))


def wait_until_idle(place: Place, nodes: Sequence[str] = NODES, timeout_s: float = READY_S) -> None:
    """Raises: PracticeError: a node was not idle in time; with the states that were seen."""
    deadline = time.monotonic() + timeout_s
    while True:
        states = node_states(place)
        late = {node: states.get(node, "not known") for node in nodes if states.get(node) != "idle"}
        if not late:
            return
        if time.monotonic() > deadline:
            told = ", ".join(f"{node}: {state}" for node, state in late.items())
            raise PracticeError(f"nodes are not idle after {timeout_s:.0f} s ({told})")
        time.sleep(0.2)
