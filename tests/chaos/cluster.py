"""A real slurmctld and many slurmd on this one machine, for a caller in namespaces of its own.

The configuration is the practice cluster's. What differs: all nodes have one address and a port
each, a node is a process namespace with a name of its own inside the caller's, and every job that
slurmctld ever knew is on file. What lives here ends with the caller's namespace.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner import run
from users import needed, view_commands

from containers.practice import daemons, files
from containers.practice.place import BRIDGE, CONTROLLER, Node, Place, Shape
from containers.practice.spaces import UNSHARE, make_folders

ADDRESS = "10.87.1.1"  # of everything; a name service takes no loopback for an address
FIRST_PORT = 17001
MEMORY_MB = 4096  # advertised
REQUEUE_WAIT_S = 10
#: What a node has for itself: processes, a name, mounts. Its network is everybody's.
APART = tuple(token for token in UNSHARE if token != "--net")
#: The first process of a node takes in what slurmd's children leave behind.
BOOT = 'hostname "$0"; slurmd -D -N "$0" & wait'


@dataclass(frozen=True)
class Cluster:
    place: Place
    size: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)  # daemons and nodes

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(f"node{number}" for number in range(1, self.size + 1))

    @property
    def completions(self) -> Path:
        """jobcomp/filetxt's file: a line for each end of a job."""
        return self.place.log / "jobcomp"

    def up(self) -> None:
        """Write all files, start all daemons, wait for all nodes."""
        for words in ("link set lo up", f"link add {BRIDGE} type bridge", f"link set {BRIDGE} up",
                      f"address add {ADDRESS}/24 dev {BRIDGE}"):  # fmt: skip
            run(["ip", *words.split()])
        run(["hostname", CONTROLLER])
        nodes = tuple(Node(name, ADDRESS, (0,), MEMORY_MB) for name in self.nodes)
        shape = Shape("", ADDRESS, ADDRESS, nodes)
        files.write(self.place, shape)
        for name in self.nodes:
            make_folders(self.place, name)
        self.place.slurm_conf.write_text(self.conf(files.slurm_conf(self.place, shape)))
        run(["mount", "--bind", str(self.place.hosts), "/etc/hosts"])
        for command in view_commands(needed(), self.place.folder / "view"):
            run(command)
        self._spawn("munged", [*daemons.munged_argv(self.place), "--foreground"])
        daemons.wait_for(self.place.munge_socket.exists, 30, "munged did not start")
        self.start_controller()
        daemons.wait_for(self.answers, 60, "slurmctld does not answer")
        for name in self.nodes:
            self.start_node(name)
        daemons.wait_until_idle(self.place, self.nodes)

    def conf(self, text: str) -> str:
        def with_port(found: re.Match[str]) -> str:
            return f"{found[0]} Port={FIRST_PORT - 1 + int(found[1])}"

        text = re.sub(r"^NodeName=node(\d+)", with_port, text, flags=re.MULTILINE)
        text = re.sub(r"cred_expire=\d+", f"cred_expire={REQUEUE_WAIT_S}", text)
        return text + f"JobCompType=jobcomp/filetxt\nJobCompLoc={self.completions}\n"

    def _spawn(self, name: str, argv: Sequence[str]) -> None:
        with (self.place.folder / f"{name}.said").open("ab") as said:
            self.running[name] = subprocess.Popen(
                argv, env=daemons.environment(self.place), cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip

    def start_node(self, name: str) -> None:
        self._spawn(name, [*APART, "sh", "-c", BOOT, name])

    def lose_node(self, name: str) -> None:
        """Kill slurmd and all that runs on the node, at once."""
        process = self.running.pop(name)
        process.kill()  # and the kernel its child, with all that lives in its namespace
        process.wait()

    def start_controller(self) -> None:
        self._spawn("slurmctld", ["slurmctld", "-D"])

    def stop_controller(self, number: signal.Signals) -> None:
        process = self.running.pop("slurmctld")
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:  # SIGTERM, and it waits for a node that is gone
            process.kill()
            process.wait()

    def answers(self) -> bool:
        return "slurmctld" in self.running and self.ask("scontrol", "ping") is not None

    def ask(self, *argv: str, timeout_s: float = 15) -> str | None:
        """What one of Slurm's programs answers root; None where it refuses, or nobody is there."""
        try:
            done = subprocess.run(
                argv, env=os.environ | daemons.slurm_environment(self.place), capture_output=True,
                text=True, check=False, timeout=timeout_s, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None
        return None if done.returncode else done.stdout

    def jobs(self, user: str, states: str = "all") -> list[list[str]]:
        """[id as people see it, state, node, name, number] of each job of a user."""
        told = self.ask("squeue", "--noheader", "--array", f"--user={user}", f"--states={states}",
                        "--format=%i|%T|%N|%j|%A")  # fmt: skip
        return [line.split("|") for line in (told or "").splitlines()]

    def tend(self, user: str) -> list[str]:
        """What an administrator does after a slurmctld was killed that had not yet saved its state:
        it starts jobs once more whose nodes then refuse them (Duplicate jobid), drains these nodes
        and holds the jobs. Returns what was mended."""
        mended = []
        for line in (self.ask("sinfo", "-hN", "-p", "practice", "-o", "%N %T") or "").splitlines():
            node, state = line.split()
            if state.startswith("drain"):
                self.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
                mended.append(f"{node} ({state})")
        told = self.ask("squeue", "-h", "--array", f"--user={user}", "-t", "pending", "-o", "%i|%r")
        for line in (told or "").splitlines():
            job, _, reason = line.partition("|")
            if reason.replace(" ", "_").endswith("requeued_held"):
                self.ask("scontrol", "release", job)
                mended.append(f"job {job} ({reason})")
        return mended

    def wait_until_empty(self, user: str, timeout_s: float) -> None:
        """Until no job of the user is left, or for so long."""
        deadline = time.monotonic() + timeout_s
        alive = "pending,running,suspended,completing,configuring"
        while self.jobs(user, alive) and time.monotonic() < deadline:
            self.tend(user)
            time.sleep(3)
