"""How often a status of 2,000 cells asks Slurm: once; and once more when a job is unexplained.

The programs of Slurm are fakes on PATH that count their calls and print what real ones print.
"""

from __future__ import annotations

import os
import stat
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cell.missing_record import Begun, announce
from jobs.slurm.arrays import Array
from jobs.slurm.client.sacct import History
from jobs.slurm.client.squeue import FIELD, START
from jobs.slurm.status import Look, counts, look
from jobs.slurm.submissions import RunNote, read_notes, write_note
from tests.builders import config
from train.record.run import read_record

CELLS, LIMIT, NAME = 2000, 1000, "horoscale-t-01234567"
CONFIGS = [config(seed=seed, gpus=2) for seed in range(CELLS)]
OFF = "echo 'Slurm accounting storage is disabled' >&2; exit 1"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 cells, submitted as two arrays."""
    folder = tmp_path_factory.mktemp("sweep")
    names = tuple(config.cell_id() for config in CONFIGS)
    for name in names:
        (folder / name).mkdir()
    arrays = tuple(
        Array(
            job_id=str(7 + at), nodes=1, ranks_per_node=2, minutes=5,
            units=tuple((name,) for name in names[at * LIMIT : (at + 1) * LIMIT]),
        )
        for at in range(CELLS // LIMIT)
    )  # fmt: skip
    write_note(folder, RunNote(run="r", site="s", job_name=NAME, submitted_at=datetime.now(UTC),
                               arrays=arrays))  # fmt: skip
    return folder


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Fakes: squeue prints the jobs that it is given, sacct is off, scontrol knows nothing."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    calls = tmp_path / "calls"

    def put(name: str, script: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> '{calls}'\n{script}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)

    def jobs(states: dict[str, str]) -> Path:
        text = ""
        for job, state in states.items():
            array, _, index = job.partition("_")
            reason = "Priority" if state == "PENDING" else "None"
            fields = [array, array, index, state, reason, "N/A", "0:10", ""]
            fields += ["(null)", "(null)", NAME]
            text += START + FIELD.join(fields) + "\n"
        (tmp_path / "queue").write_text(text)
        put("squeue", f"cat '{tmp_path / 'queue'}'")
        put("sacct", OFF)
        put("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
        return calls

    return jobs


def status(sweep: Path) -> Look:
    return look(CONFIGS, sweep, History())


def queued(state: str = "PENDING") -> dict[str, str]:
    return {f"{7 + at // LIMIT}_{at % LIMIT}": state for at in range(CELLS)}


def test_one_call_for_2000_cells(sweep: Path, slurm) -> None:
    calls = slurm(queued() | {f"7_{at}": "RUNNING" for at in range(64)})
    began = time.monotonic()
    states = status(sweep).states
    took_s = time.monotonic() - began
    assert calls.read_text().split() == ["squeue"]
    assert counts(states) == {"starting": 64, "waiting": CELLS - 64}
    assert took_s < 30


def test_unexplained_jobs_cost_one_squeue_and_one_sacct(sweep: Path, slurm) -> None:
    """Asked by id; when their files are ten minutes old each gets its record, and nothing is asked
    any more."""
    told = queued()
    for job in ("7_3", "8_999"):
        del told[job]
    calls = slurm(told)
    for index, job in ((3, "7_3"), (1999, "8_999")):
        cell = sweep / CONFIGS[index].cell_id()
        (cell / "logs").mkdir()
        announce(cell, Begun(number=1, started_at=datetime.now(UTC), pid=1, job=job))
    states = status(sweep).states
    asked = ["squeue", "squeue", "sacct"]
    assert calls.read_text().split() == asked
    assert counts(states) == {"ending": 2, "waiting": CELLS - 2}
    (note,) = read_notes(sweep)[0]
    old = note.submitted_at - timedelta(hours=1)
    write_note(sweep, note.model_copy(update={"submitted_at": old}))
    for index in (3, 1999):
        for file in (sweep / CONFIGS[index].cell_id()).rglob("*"):
            os.utime(file, (old.timestamp(),) * 2)
    calls.unlink()
    assert counts(status(sweep).states) == {"lost": 2, "waiting": CELLS - 2}
    assert calls.read_text().split() == asked
    assert read_record(sweep / CONFIGS[3].cell_id() / "record.json").status == "lost"
    calls.unlink()
    assert counts(status(sweep).states) == {"lost": 2, "waiting": CELLS - 2}
    assert calls.read_text().split() == ["squeue"]


def test_a_controller_that_is_away_costs_one_call_and_the_files_tell(
    sweep: Path, slurm, tmp_path: Path
) -> None:
    calls = slurm({})
    said = Path(__file__).parent / "transcripts" / "queue" / "controller_down.err"
    script = f"#!/bin/sh\necho squeue >> '{calls}'\ncat '{said}' >&2\nexit 1\n"
    (tmp_path / "squeue").write_text(script)
    found = status(sweep)
    assert calls.read_text().split() == ["squeue"]
    assert found.trouble is not None and "Unable to contact slurm controller" in found.trouble
    assert "what the files say" in found.trouble
    assert counts(found.states)["unknown"] >= CELLS - 2
