"""What an earlier make sweep may have submitted, and nobody knows: it must not run twice."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.cell.state import CellState
from jobs.slurm.submissions import SBATCH_S, SCRIPT_NAME, RunNote, array_folder

#: sbatch itself tries for two minutes; what it was to submit is in the queue by then, or nowhere.
UNCLEAR_S = 2 * SBATCH_S


@dataclass(frozen=True)
class Unclear:
    """A submission of which it is not known whether Slurm accepted it."""

    run: str
    part: str
    cells: list[CellState]
    until: float  # monotonic: by then it is in the queue, or nowhere


def unclear_in(sweep: Path, notes: Iterable[RunNote], cells: Sequence[CellState]) -> list[Unclear]:
    """Those of earlier runs: sbatch was called a moment ago, and no job's id was noted."""
    unclear = []
    by_name = {cell.name: cell for cell in cells}
    for note in notes:
        for index, array in enumerate(note.arrays if note.kind == "cells" else ()):
            script = array_folder(sweep, note.run, note.part(index)) / SCRIPT_NAME
            if array.job_id is None and script.exists():
                left_s = UNCLEAR_S - (time.time() - script.stat().st_mtime)
                mine = [by_name[name] for unit in array.units for name in unit if name in by_name]
                if left_s > 0 and mine:
                    until = time.monotonic() + left_s
                    unclear.append(Unclear(note.run, note.part(index), mine, until))
    return unclear
