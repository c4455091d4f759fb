"""Starting and stopping the cluster's daemons, each in its space, and what Slurm answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from locks import SetupError
from runner import output, run, tail
from users import SEARCH_PATH

from .place import CONTROLLER, NODES, Place
from .spaces import enter_argv, keeper, wait_for


def munged_argv(place: Place) -> list[str]:
    own = place.munge / "private"
    return [
        "setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "--",
        "munged", f"--socket={place.munge_socket}", f"--key-file={own}/key",
        f"--pid-file={place.pid_file(CONTROLLER, 'munged')}", f"--log-file={own}/munged.log",
        f"--seed-file={own}/seed", "--num-threads=4",
    ]  # fmt: skip


def slurmd_argv(node: str, cores: Sequence[int]) -> list[str]:
    """Bound to the node's cores, and so is all that it starts."""
    return ["taskset", "--cpu-list", ",".join(map(str, cores)), "slurmd", "-N", node]


def environment(place: Place) -> dict[str, str]:
    """Of daemons: nothing of the caller's, which jobs could inherit."""
    return {"PATH": SEARCH_PATH, "LANG": "C.UTF-8", "SLURM_CONF": str(place.slurm_conf)}


def run_inside(place: Place, space: str, command: Sequence[str]) -> str:
    """Output of a command in a space; SetupError where it fails, or the space is not there."""
    return run(enter_argv(keeper(place, space), command), env=environment(place))


def daemon_pid(place: Place, space: str, name: str) -> int | None:
    """Process id of a living daemon, counted inside its space; null where it does not run."""
    try:
        pid = int(place.pid_file(space, name).read_text())
        # the id may be another program's by now
        runs = run_inside(place, space, ["cat", f"/proc/{pid}/comm"]).strip() == name
    except (OSError, ValueError, SetupError):
        return None
    return pid if runs else None


def stop(place: Place, space: str, name: str) -> None:
    """End a daemon, where it runs, and wait for its end. SetupError where there is no space."""
    keeper(place, space)
    if pid := daemon_pid(place, space, name):
        run_inside(place, space, ["kill", "-TERM", str(pid)])
        wait_for(lambda: daemon_pid(place, space, name) is None, 60, f"{name} did not stop")


def start(place: Place, space: str, command: Sequence[str], name: str) -> None:
    """Start a daemon that goes into the background, where it does not run."""
    if daemon_pid(place, space, name) is None:
        run_inside(place, space, command)


def last_words(place: Place) -> str:
    """The ends of the logs, before they go with the folder; a daemon's user may have put anything
    in their place."""
    ends = {}
    for log in sorted((*place.log.glob("*.log"), *place.folder.glob("*/*.log"))):
        with suppress(OSError):
            handle = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(handle, errors="replace") as file:
                ends[log.name] = tail(file.read(), 8)
    return "".join(f"\n--- {name}\n{end}" for name, end in ends.items() if end)


def slurm_environment(place: Place) -> dict[str, str]:
    """What a caller adds to its environment so that Slurm's commands mean this cluster."""
    return {"SLURM_CONF": str(place.slurm_conf)}


def node_states(place: Place) -> dict[str, str]:
    """State of each node as sinfo tells it, such as idle or down*; empty without an answer."""
    found = output(["timeout", "60", "env", f"SLURM_CONF={place.slurm_conf}", "sinfo", "--noheader",
                    "--Node", "--format=%N %t", "--partition=practice"]) or ""  # fmt: skip
    return dict(line.split(maxsplit=1) for line in found.splitlines())


def wait_until_idle(place: Place, nodes: Sequence[str] = NODES) -> None:
    """Raises: SetupError: a node was not idle in time; with the states that were seen."""
    states: dict[str, str] = {}

    def are_idle() -> bool:
        states.clear()
        states.update(node_states(place))
        return all(states.get(node) == "idle" for node in nodes)

    try:
        wait_for(are_idle, 180, "nodes are not idle")
    except SetupError as error:
        raise SetupError(f"{error} ({states or 'Slurm does not answer'})") from error
