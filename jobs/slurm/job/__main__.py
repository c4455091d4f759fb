"""`python -m jobs.slurm.job TASKS.json`: what every batch script starts, on its first node."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from jobs.slurm.job.interconnect import run_interconnect
from jobs.slurm.job.preflight import run_preflight
from jobs.slurm.job.supervisor import run_cell
from train.program.command_line import open_streams

PROGRAMS = {"cells": run_cell, "preflight": run_preflight, "interconnect": run_interconnect}


def main(file: Path) -> None:
    """Run the task of this element of the array."""
    payload = json.loads(file.read_text(encoding="utf-8"))
    index = int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0)
    PROGRAMS[payload["program"]](payload["tasks"][index])


if __name__ == "__main__":
    open_streams()
    main(Path(sys.argv[1]))
