"""What an earlier make sweep may have submitted a moment ago."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from jobs.cell.state import NEW, CellState
from jobs.slurm.submissions import Array, RunNote, array_folder
from jobs.slurm.watch.unclear import UNCLEAR_S, unclear_in
from tests.builders import config


def test_what_an_earlier_make_sweep_may_have_submitted_is_waited_for(tmp_path: Path) -> None:
    configs = [config(seed=seed) for seed in range(2)]
    cells = [CellState(one, tmp_path / one.cell_id(), NEW) for one in configs]
    note = RunNote(
        run="r1", site="s", job_name="n", submitted_at=datetime.now(UTC),
        arrays=(Array(units=((cells[0].name,),), nodes=1, ranks_per_node=1, minutes=1),),
    )  # fmt: skip
    assert unclear_in(tmp_path, [note], cells) == [], "its sbatch was never called"
    script = array_folder(tmp_path, "r1", 0) / "submission.sh"
    script.parent.mkdir(parents=True)
    script.touch()
    (one,) = unclear_in(tmp_path, [note], cells)
    assert one.cells == cells[:1]
    then = time.time() - UNCLEAR_S - 1
    os.utime(script, (then, then))
    assert unclear_in(tmp_path, [note], cells) == []
