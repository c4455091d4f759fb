"""Where a practice cluster lives, and how its parts are called: names and paths, nothing else."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the checkout, seen by every node at this path
DEFAULT = Path("/run/horoscale-practice")
NODES = ("node1", "node2", "node3", "node4")
CONTROLLER = "controller"
SPACES = (CONTROLLER, *NODES)
BRIDGE = "hsbr0"  # in the controller's network, as are the ends of all links
GPUS = 2  # pretend ones, of each node
CPUS = 2  # of each node, as Slurm is told
CONTROLLER_PORT, NODE_PORT, ACCOUNTING_PORT = 16817, 16818, 16819


class PracticeError(Exception):
    """The cluster cannot do this; the text says what was found, what was expected, what to do."""


@dataclass(frozen=True)
class Place:
    """One cluster's folder (an own tmpfs, gone with the cluster) and the names that follow."""

    folder: Path = DEFAULT

    @property
    def slurm_conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def state(self) -> Path:
        return self.folder / "state.json"

    @property
    def hosts(self) -> Path:
        return self.folder / "hosts"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def pids(self) -> Path:
        return self.folder / "pids"

    @property
    def munge(self) -> Path:
        return self.folder / "munge"

    @property
    def munge_socket(self) -> Path:
        return self.munge / "socket"

    @property
    def database(self) -> Path:
        return self.folder / "database"

    @property
    def devices(self) -> Path:
        return self.folder / "dev"

    @property
    def login_link(self) -> str:
        """Network interface by which the machine itself (the login node) reaches the cluster."""
        if self.folder == DEFAULT:
            return "hslogin"
        return "hs" + hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:8]

    def spool(self, node: str) -> Path:
        return self.folder / node / "spool"

    def temporary(self, node: str) -> Path:
        """What the node sees as /tmp."""
        return self.folder / node / "tmp"

    def pid_file(self, daemon: str) -> Path:
        """Holds a process id as counted inside the daemon's own space."""
        own = {"munged": self.munge / "private", "mariadbd": self.database}  # may write there only
        return own.get(daemon, self.pids) / f"{daemon}.pid"


def place_of(environment: Mapping[str, str]) -> Place:
    """The place that HOROSCALE_PRACTICE names, for a second cluster beside the usual one.

    Raises:
        PracticeError: it is not an absolute path of plain signs.
    """
    told = environment.get("HOROSCALE_PRACTICE")
    if not told:
        return Place()
    folder = Path(told)
    plain = all(sign.isalnum() or sign in "/._-" for sign in told)
    if not folder.is_absolute() or ".." in folder.parts or len(folder.parts) < 3 or not plain:
        raise PracticeError(
            f"HOROSCALE_PRACTICE={told!r} found, expected an absolute path of letters, digits and "
            "/ . _ - that this cluster may have for itself, such as /run/horoscale-other"
        )
    if len(told) > 60:  # a socket's path holds 107 bytes
        raise PracticeError(f"HOROSCALE_PRACTICE={told!r} found, expected at most 60 signs")
    return Place(folder)
