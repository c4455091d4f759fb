"""Spaces: the namespaces of the controller and of each node, and how to find and enter them.

Each space is kept by one sleeping process, the first of its process namespace. What runs in the
space cannot outlive it: when it is killed, the kernel ends all others, and with the last one go
the space's network, mounts and links. Node spaces lie inside the controller's, so that ending this
one ends all. A keeper is found by a mark in its environment, never by a file that may be stale.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from locks import SetupError
from users import ROOT

from .place import CONTROLLER, Place

MARK = "HOROSCALE_KEEPER"
PROC = Path("/proc")
# as the first process of its namespace it must take in orphans that end: ignoring their ending does
KEEP = ("env", "--ignore-signal=CHLD", "sleep", "infinity")
UNSHARE = (
    "unshare", "--mount", "--uts", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
    "--propagation", "private", "--",
)  # fmt: skip


@dataclass(frozen=True)
class Process:
    """What /proc says of one marked process."""

    pid: int
    space: str
    first: bool  # the first process of its namespace: the keeper itself


def keep_argv(inside: int | None) -> list[str]:
    """Make a space and stay in it; ``inside``: the keeper of the controller, for a node's."""
    around = () if inside is None else ("nsenter", f"--target={inside}", "--mount", "--pid", "--")
    return [*around, *UNSHARE, *KEEP]


def enter_argv(keeper: int, command: Sequence[str], folder: str = "/") -> list[str]:
    """Run a command in a space, as root."""
    return [
        "nsenter", f"--target={keeper}", "--mount", "--uts", "--net", "--pid", "--",
        "env", f"--chdir={folder}", *command,
    ]  # fmt: skip


def in_network_argv(keeper: int, command: Sequence[str]) -> list[str]:
    """Run a command of this machine with a space's network only; process ids stay the machine's."""
    return ["nsenter", f"--target={keeper}", "--net", "--", *command]


def mark(place: Place, space: str) -> str:
    return f"{place.folder}:{space}"


def marked(place: Place, proc: Path = PROC) -> list[Process]:
    """All processes that keep spaces of this cluster, or wait for one that does."""
    found = []
    begin = f"{MARK}={place.folder}:"
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != 0:  # only root's marks count: a user could write one, too
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
            told = [v for v in map(os.fsdecode, variables) if v.startswith(begin)]
            if told:
                found.append(
                    Process(int(entry.name), told[0].removeprefix(begin), _is_first(entry))
                )
        except OSError:  # it ended while we looked
            continue
    return found


def _is_first(entry: Path) -> bool:
    for line in (entry / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            ids = line.split()[1:]
            return len(ids) > 1 and ids[-1] == "1"
    return False


def keepers(place: Place) -> dict[str, int]:
    """Process id of the keeper of each space that is there."""
    return {process.space: process.pid for process in marked(place) if process.first}


def keeper(place: Place, space: str) -> int:
    """Process id of the keeper of one space; SetupError where the space is not there."""
    found = keepers(place)
    if space not in found:
        there = ", ".join(sorted(found)) or "nothing"
        raise SetupError(
            f"{space} does not run (running: {there}). Start the cluster with make cluster, "
            "or one node with: python3 containers/practice start-node NODE"
        )
    return found[space]


def make_space(place: Place, space: str, inside: int | None) -> int:
    """Start a keeper and wait until it is there; returns its process id.

    Raises SetupError where it did not come up.
    """
    path = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    said = place.folder / space / "space.log"
    with said.open("wb") as errors:
        process = subprocess.Popen(
            keep_argv(inside),
            env={"PATH": path, MARK: mark(place, space)},
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,  # survives the make, the shell and the terminal
            cwd="/",
        )
    # it is ours only once it sleeps: before that, its /proc may not be mounted yet
    wait_for(
        lambda: _program(keepers(place).get(space)) == "sleep" or process.poll() is not None,
        10, f"the namespaces of {space} did not come up",
    )  # fmt: skip
    if process.poll() is not None:
        raise SetupError(f"cannot make the namespaces of {space}: {said.read_text().strip()}")
    return keeper(place, space)


def _program(pid: int | None) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def end_space(place: Place, space: str) -> None:
    """Kill a space's first process, and so all in it; returns when nothing of it is left.

    Raises SetupError where something stays (a process in the kernel's hands).
    """

    def ended() -> bool:
        # the nodes' spaces lie in the controller's, which takes them along
        left = [p for p in marked(place) if space in (p.space, CONTROLLER)]
        # keepers first: what waits for them outside ends by itself then
        for process in [process for process in left if process.first] or left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        return not left

    wait_for(ended, 20, f"processes of {space} were killed and did not end")


def wait_for(condition: Callable[[], bool], timeout_s: float, trouble: str) -> None:
    """Raises: SetupError: the condition did not become true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise SetupError(f"{trouble} within {timeout_s:.0f} s")
        time.sleep(0.05)


SHARED_MEMORY = "1g"


def room_commands(place: Place, space: str) -> list[list[str]]:
    """Mounts of one space, run inside it: it sees all of the machine, but has /tmp, /dev/shm and a
    name of its own; a checkout in /tmp is seen, too."""
    temporary, checkout = place.temporary(space), []
    if ROOT.is_relative_to("/tmp"):  # noqa: S108
        inside = str(temporary / ROOT.relative_to("/tmp"))  # noqa: S108
        checkout = [["mkdir", "-p", inside], ["mount", "--rbind", str(ROOT), inside]]
    return [
        ["hostname", space],
        ["mount", "--bind", str(place.hosts), "/etc/hosts"],
        # the machine's /sys would show its own network interfaces under the names of the node's
        ["mount", "-t", "sysfs", "-o", "nosuid,nodev,noexec", "sysfs", "/sys"],
        *checkout,
        ["mount", "--rbind", str(temporary), "/tmp"],  # noqa: S108
        ["mount", "-t", "tmpfs", "-o", f"mode=1777,size={SHARED_MEMORY}", "shm", "/dev/shm"],  # noqa: S108
    ]


def make_folders(place: Place, space: str) -> None:
    place.spool(space).mkdir(parents=True, exist_ok=True)
    temporary = place.temporary(space)
    temporary.mkdir(parents=True, exist_ok=True)
    temporary.chmod(0o1777)  # mkdir heeds the umask
