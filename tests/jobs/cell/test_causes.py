"""Failed cells are told by cause, each once, with the last line of the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.cell.failure import read_more
from jobs.cell.state import recorded
from jobs.config.load import load_sweep
from jobs.display import MAX_CAUSES, say_results
from jobs.slurm.board import reasons
from jobs.slurm.status import read_life, survey_slurm
from tests.builders import config, record
from train.record.run import RunError

QUICK = load_sweep("quickstart")


def failed(folder: Path, seed: int, what: str, *log: str, hosts: tuple[str, ...] = ("host",)):
    """The cell as it is found after a failed start."""
    one = config(seed=seed)
    error = RunError(what=what, where="rank 0", what_to_do="look", log_tail=log)
    made = record(one, status="failed", error=error)
    world = made.world.model_copy(update={"hostnames": hosts})
    (folder / one.cell_id()).mkdir(parents=True)
    file = folder / one.cell_id() / "record.json"
    file.write_text(made.model_copy(update={"world": world}).model_dump_json())
    return recorded(one, folder / one.cell_id())


def test_the_last_words_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        failed(tmp_path, 0, "RuntimeError: one of its own"),
        *(failed(tmp_path, n, f"rank {n} ended with exit code 1", f"No module named x on h{n}",
                 hosts=(f"h{n}",)) for n in range(1, 4)),
        recorded(config(seed=9), tmp_path / "absent"),
    ]  # fmt: skip
    results = {cell.config.cell_id(): cell.status for cell in cells[:4]}
    assert say_results(QUICK, cells, results | {cells[4].config.cell_id(): "completed"}) == 1
    said = capsys.readouterr().err.splitlines()
    first = cells[1].config.cell_id()
    assert said[1] == (
        "[sweep] 3 cells failed: rank 1 ended with exit code 1; its log ends: No module named x "
        f"on h1 (make logs SWEEP=quickstart CELL={first})"
    )
    assert said[2].startswith("[sweep] 1 cell failed: RuntimeError: one of its own (make logs")
    assert len(said) == 4


def test_a_diverged_run_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = failed(tmp_path, 0, "the loss is infinite")
    assert say_results(QUICK, [replace(cell, status="diverged")], {}) == 0
    assert "make logs" not in capsys.readouterr().err


def test_no_more_causes_than_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [failed(tmp_path, n, f"no module {'abcdefgh'[n] * 3}") for n in range(8)]
    say_results(QUICK, cells, {cell.config.cell_id(): "failed" for cell in cells})
    said = capsys.readouterr().err
    assert said.count("make logs") == MAX_CAUSES and "and 3 other causes" in said


def test_the_status_tells_the_same_causes(tmp_path: Path) -> None:
    cells = [failed(tmp_path, n, f"rank {n} ended with exit code 1", "No module named x")
             for n in range(3)]  # fmt: skip
    states = survey_slurm([(cell, read_life(cell)) for cell in cells], {}, (), {})
    assert reasons(states, sweep="a b.yaml") == [
        "3 cells failed: rank 0 ended with exit code 1; its log ends: No module named x "
        f"({read_more('a b.yaml', cells[0].config.cell_id())})"
    ]
    assert read_more("a b.yaml", "c") == "make logs SWEEP='a b.yaml' CELL=c"
