"""Recorded answers of Slurm's programs, for the tests that ask a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jobs.slurm.client.detect import MPI_LIST
from jobs.slurm.client.nodes import SINFO
from jobs.slurm.client.run import SCONTROL

SAID = Path(__file__).parent.parent / "transcripts" / "queue"
TRANSCRIPTS = SAID.parent / "cluster"
_FILES = {SINFO: "sinfo", SCONTROL: "config", MPI_LIST: "mpi"}


class Recorded:
    """Answers questions from transcripts, and counts them."""

    def __init__(self, cluster: str, **instead: str) -> None:
        self.cluster = cluster
        self.instead = instead
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str]) -> str:
        name = _FILES[tuple(argv)]
        self.asked.append(name)
        default = (TRANSCRIPTS / f"{self.cluster}_{name}.out").read_text()
        return self.instead.get(name, default)
