"""Starting and stopping the cluster's daemons, each in its space, and what Slurm answers."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from locks import SetupError
from runner import output, run, tail
from users import SEARCH_PATH

from .place import ACCOUNTING_PORT, CONTROLLER, NODES, Place, Shape
from .spaces import enter_argv, keeper

STOP_S = 60


def as_user_argv(user: str, command: Sequence[str]) -> list[str]:
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *command]


def munged_argv(place: Place) -> list[str]:
    folder = place.munge
    return as_user_argv("munge", [
        "munged", f"--socket={place.munge_socket}", f"--key-file={folder}/private/key",
        f"--pid-file={place.pid_file('munged')}", f"--log-file={folder}/private/munged.log",
        f"--seed-file={folder}/private/seed", "--num-threads=4",
    ])  # fmt: skip


def slurmd_argv(node: str, cores: Sequence[int]) -> list[str]:
    """Bound to the node's cores, and so is all that it starts."""
    return ["taskset", "--cpu-list", ",".join(map(str, cores)), "slurmd", "-N", node]


def database_argv(place: Place) -> list[str]:
    """A small private server without network; everything lies in the cluster's folder."""
    folder = place.database
    return [
        "mariadbd", "--no-defaults", "--user=mysql", f"--datadir={folder}/data",
        f"--socket={folder}/socket", f"--pid-file={place.pid_file('mariadbd')}",
        f"--log-error={folder}/error.log", "--skip-networking",
        f"--init-file={folder}/first.sql", "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=16M", "--performance-schema=off", "--skip-log-bin",
        "--innodb-lock-wait-timeout=900", "--max-allowed-packet=16M",
    ]  # fmt: skip


def install_database_argv(place: Place) -> list[str]:
    return [
        "mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={place.database}/data",
        "--auth-root-authentication-method=socket", "--skip-test-db", "--innodb-log-file-size=16M",
    ]  # fmt: skip


def environment(place: Place) -> dict[str, str]:
    """Of daemons: nothing of the caller's, which jobs could inherit."""
    return {
        "PATH": SEARCH_PATH, "LANG": "C.UTF-8", "SLURM_CONF": str(place.slurm_conf),
        "MYSQL_UNIX_PORT": f"{place.database}/socket",
    }  # fmt: skip


def run_inside(place: Place, space: str, command: Sequence[str]) -> str:
    """Run a command in a space and return its output.

    Raises:
        SetupError: the space is not there, or the command failed.
    """
    argv = enter_argv(keeper(place, space), command)
    return run(argv, env=environment(place))


def spawn_inside(place: Place, space: str, command: Sequence[str]) -> None:
    """Start a daemon that stays in the foreground, and leave it running."""
    subprocess.Popen(
        enter_argv(keeper(place, space), command),
        env=environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def daemon_pid(place: Place, space: str, name: str, daemon: str) -> int | None:
    """Process id of a living daemon, counted inside its space; null where it does not run.

    ``daemon`` is the name of its pid file, ``name`` that of its program: a stale id is no daemon.
    """
    try:
        pid = int(place.pid_file(daemon).read_text())
        status = run_inside(place, space, ["cat", f"/proc/{pid}/status"])
    except (OSError, ValueError, SetupError):
        return None
    return pid if is_alive(status, name) else None


def is_alive(status: str, name: str) -> bool:
    """Whether a text like /proc/PID/status is that of this program, and not of its remains."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    dead = fields.get("State", " Z").split()[0] in ("Z", "X")
    return fields.get("Name", "").strip() == name and not dead


def stop(place: Place, space: str, name: str, daemon: str) -> bool:
    """End a daemon and wait for its end; false where it did not run."""
    pid = daemon_pid(place, space, name, daemon)
    if pid is None:
        return False
    run_inside(place, space, ["kill", "-TERM", str(pid)])
    wait_for(
        lambda: daemon_pid(place, space, name, daemon) is None, STOP_S, f"{daemon} did not stop"
    )
    return True


def wait_for(condition: Callable[[], bool], timeout_s: float, trouble: str) -> None:
    """Raises: SetupError: the condition did not become true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise SetupError(f"{trouble} within {timeout_s:.0f} s")
        time.sleep(0.1)


def start_slurmctld(place: Place) -> None:
    if daemon_pid(place, CONTROLLER, "slurmctld", "slurmctld") is None:
        run_inside(place, CONTROLLER, ["slurmctld"])


def start_slurmd(place: Place, shape: Shape, node: str) -> None:
    if daemon_pid(place, node, "slurmd", f"slurmd-{node}") is None:
        cores = next(n.cores for n in shape.nodes if n.name == node)
        run_inside(place, node, slurmd_argv(node, cores))


def start_accounting(place: Place, shape: Shape) -> None:
    """MariaDB, then slurmdbd; returns when it listens."""
    run_inside(place, CONTROLLER, install_database_argv(place))
    spawn_inside(place, CONTROLLER, database_argv(place))
    wait_for((place.database / "socket").exists, 60, "the database did not start")
    run_inside(place, CONTROLLER, ["slurmdbd"])
    # a slurmctld that starts before it listens gives up for good
    address = (shape.controller, ACCOUNTING_PORT)
    wait_for(lambda: listens(address), 60, "slurmdbd did not start")


def listens(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


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


READY_S = 180


def slurm_environment(place: Place) -> dict[str, str]:
    """What a caller adds to its environment so that Slurm's commands mean this cluster."""
    return {"SLURM_CONF": str(place.slurm_conf)}


def node_states(place: Place) -> dict[str, str]:
    """State of each node as sinfo tells it, such as idle or down*; empty without an answer."""
    variables = [f"{name}={value}" for name, value in slurm_environment(place).items()]
    found = output(["timeout", "60", "env", *variables, "sinfo", "--noheader", "--Node",
                    "--format=%N %t", "--partition=practice"]) or ""  # fmt: skip
    return dict(line.split(maxsplit=1) for line in found.splitlines())


def controller_answers(place: Place) -> bool:
    return bool(node_states(place))


def wait_until_idle(place: Place, nodes: Sequence[str] = NODES, timeout_s: float = READY_S) -> None:
    """Raises: SetupError: a node was not idle in time; with the states that were seen."""
    deadline = time.monotonic() + timeout_s
    while True:
        states = node_states(place)
        late = {node: states.get(node, "not known") for node in nodes if states.get(node) != "idle"}
        if not late:
            return
        if time.monotonic() > deadline:
            told = ", ".join(f"{node}: {state}" for node, state in late.items())
            raise SetupError(f"nodes are not idle after {timeout_s:.0f} s ({told})")
        time.sleep(0.2)
