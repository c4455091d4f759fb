"""Recorded answers of Slurm's programs, for the tests that ask a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobs.slurm.client.granted import ACCOUNTS, NODES, PARTITIONS
from jobs.slurm.client.nodes import SINFO
from jobs.slurm.client.propose import MPI_LIST
from jobs.slurm.client.run import SCONTROL, SlurmError

SAID = Path(__file__).parent.parent / "transcripts" / "queue"
TRANSCRIPTS = SAID.parent / "cluster"
_FILES = {
    SINFO: "sinfo", SCONTROL: "config", MPI_LIST: "mpi", NODES: "nodes", PARTITIONS: "partitions",
    ACCOUNTS: "accounts",
}  # fmt: skip


class Recorded:
    """Answers questions from transcripts, and counts them."""

    def __init__(self, cluster: str, **instead: str) -> None:
        self.cluster = cluster
        self.instead = instead
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str]) -> str:
        name = next(name for start, name in _FILES.items() if tuple(argv[: len(start)]) == start)
        self.asked.append(name)
        try:
            return self.instead[name] if name in self.instead else self.file(name)
        except FileNotFoundError:
            raise SlurmError(" ".join(argv), "nobody recorded it", passing=False) from None

    def file(self, name: str) -> str:
        return (TRANSCRIPTS / f"{self.cluster}_{name}.out").read_text()
