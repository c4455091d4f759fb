"""What a person sees: the truth about every cell, in any terminal, with any half-written file."""

from __future__ import annotations

import io
import itertools
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jobs.cell.state import NEW, RUNNING, CellState
from jobs.display import Board, LiveDisplay, PlainDisplay, Row, numbers
from tests.builders import config, epoch
from train.config.technique import Technique

NAMES = "epoch", "loss", "accuracy", "images/s"
NOW = 1000.0


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A millisecond passes from one look to the next, however busy the machine is."""
    looks = itertools.count(NOW, 0.001)
    monkeypatch.setattr("jobs.display.time", SimpleNamespace(monotonic=lambda: next(looks)))


def cells(folder: Path, count: int = 2, **changes: str) -> list[CellState]:
    found = []
    for seed in range(count):
        one = config(seed=seed, epochs=4)
        (folder / one.cell_id() / "logs").mkdir(parents=True)
        found.append(CellState(one, folder / one.cell_id(), changes.get("status", NEW), ""))
    return found


def write_epochs(cell: CellState, count: int, tail: str = "") -> None:
    text = "".join(epoch(n + 1, cell.config).model_dump_json() + "\n" for n in range(count))
    (cell.folder / "epochs.jsonl").write_text(text + tail)


@given(st.integers(0, 30), st.integers(0, 600))
def test_the_last_whole_epoch_is_shown(tmp_path_factory, count: int, cut: int) -> None:
    (cell,) = cells(tmp_path_factory.mktemp("s"), 1)
    half = epoch(99, cell.config).model_dump_json()
    write_epochs(cell, count, half[: cut % len(half)])
    found = numbers(Row(cell, "running"))
    if count == 0:
        assert found == ("0/4", "", "", "starting")
    else:
        assert found == (f"{count}/4", f"{1 / count:.4f}", "0.7500", "128")


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b"{", b"\xff", b'{"phase": "x"}'])
def test_a_life_sign_of_any_form(tmp_path: Path, text: bytes) -> None:
    (cell,) = cells(tmp_path, 1)
    (cell.folder / "logs" / "rank-0.beat").write_bytes(text)
    assert numbers(Row(cell, "running"))[3] == "unknown"
    told = json.dumps({"phase": "loading the data", "idle_s": 0.2})
    (cell.folder / "logs" / "rank-0.beat").write_text(told)
    assert numbers(Row(cell, "running"))[3] == "loading the data"
    assert numbers(Row(cell, "waiting")) == ("", "", "", "")


def test_a_diverged_epoch_has_no_numbers_to_show(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, 1)
    last = epoch(1, cell.config, train_loss=None, validation_accuracy=None, train_s=0.0)
    (cell.folder / "epochs.jsonl").write_text(last.model_dump_json())
    assert numbers(Row(cell, "diverged"))[:3] == ("1/4", "", "")


def adapted(folder: Path, dataset: str) -> CellState:
    """Cells of 8 images a step for as many steps as 3 would take."""
    row = Technique(name="t", base_lr=1, base_batch=3, regime_adaptation=True)
    one = config(technique=row, dataset=dataset, batch_per_rank=8, epochs=2)
    (folder / one.cell_id() / "logs").mkdir(parents=True)
    return CellState(one, folder / one.cell_id(), NEW, "")


def test_epochs_of_an_adapted_regime_are_counted_where_the_images_are_known(tmp_path: Path) -> None:
    """1,437 digits: 2 x 479 steps are 5 epochs of 179 and one of 63."""
    cell = adapted(tmp_path, "digits")
    row = Row(cell, "running")
    assert numbers(row)[0] == "0/6" and row.rest_s() is None
    write_epochs(cell, 2)
    assert numbers(row)[0] == "2/6" and row.rest_s() == 4 * 1.75
    write_epochs(cell, 7)
    assert row.rest_s() == 0, "never less"


def test_nothing_is_said_of_all_epochs_where_only_the_data_tells(tmp_path: Path) -> None:
    cell = adapted(tmp_path, "folder:a")
    board = Board.of([cell])
    row = board.started(cell)
    assert numbers(row)[0] == "0"
    write_epochs(cell, 4)
    assert numbers(row)[0] == "4"
    assert row.rest_s() is None and board.left_s() is None


def test_drawing_is_cheap_however_long_the_run(tmp_path: Path) -> None:
    """It is drawn four times a second beside ranks that are timed."""
    (cell,) = cells(tmp_path, 1)
    write_epochs(cell, 3000)
    row = Row(cell, "running")
    began = time.process_time()
    for _ in range(100):
        assert numbers(row)[0] == "3000/4"
    assert time.process_time() - began < 0.5, "reading it all takes seconds"


def test_plain_lines(tmp_path: Path, monkeypatch, slow_clock) -> None:
    out = io.StringIO()
    first, second = cells(tmp_path)
    display = PlainDisplay([first, second], out)
    display.started(first)
    display.tick()
    monkeypatch.setattr("jobs.display.PLAIN_PERIOD_S", 0.0)
    write_epochs(first, 2)
    display.tick()
    display.ended(first, "completed", "")
    display.started(second)
    display.ended(second, "failed", "rank 1 was ended by SIGKILL")
    name, other = first.config.cell_id(), second.config.cell_id()
    assert out.getvalue().splitlines() == [
        f"[1/2] {name}: started",
        f"    {name}: epoch 2/4 loss 0.5000 accuracy 0.7500 images/s 128; left 0:07",
        f"    {name}: completed after 0 s: epoch 2/4, loss 0.5000, accuracy 0.7500, 128 images/s"
        "; left 0:00",
        f"[2/2] {other}: started",
        f"    {other}: failed after 0 s: rank 1 was ended by SIGKILL",
    ]


def test_a_cell_of_an_earlier_sweep_is_said_to_be_one(tmp_path: Path) -> None:
    out = io.StringIO()
    (cell,) = cells(tmp_path, 1, status=RUNNING)
    PlainDisplay([cell], out).started(cell)
    assert "started by an earlier make sweep, waiting for it" in out.getvalue()


def test_a_reader_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    (cell,) = cells(tmp_path, 1)
    out = os.fdopen(write, "w")
    display = PlainDisplay([cell], out)
    display.started(cell)
    display.ended(cell, "failed", "x")
    with pytest.raises(BrokenPipeError):
        out.close()


def test_remaining_time_is_that_of_cells_of_the_same_size(tmp_path: Path, slow_clock) -> None:
    sizes = [1, 1, 2, 2, 4]
    standing = [CellState(config(gpus=n, seed=s), tmp_path, NEW, "") for s, n in enumerate(sizes)]
    board = Board.of(standing)
    rows = list(board.rows.values())
    assert board.left_s() is None
    rows[0].state, rows[0].took_s = "completed", 10.0
    assert board.left_s() == pytest.approx(4 * 10)
    rows[2].state, rows[2].took_s = "completed", 20.0
    assert board.left_s() == pytest.approx(10 + 20 + 15)
    rows[1].state, rows[1].began = "running", NOW - 4
    assert board.left_s() == pytest.approx(6 + 20 + 15, abs=0.1)
    rows[1].began = NOW - 400
    assert board.left_s() == pytest.approx(20 + 15, abs=0.1), "never less than nothing"


def test_remaining_time_before_any_cell_is_done_is_that_of_the_epochs_to_go(
    tmp_path, slow_clock
) -> None:
    first, second = cells(tmp_path)  # of 4 epochs, 1.5 + 0.25 s each
    board = Board.of([first, second])
    row = board.started(first)
    assert board.left_s() is None
    write_epochs(first, 1)
    row.began = NOW - 5
    rest = 3 * 1.75
    assert board.left_s() == pytest.approx(rest + (5 + rest), abs=0.1)


def terminal(width: int = 120, height: int = 30) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None
    )


def test_the_live_table_tells_why_a_cell_failed(tmp_path: Path) -> None:
    console = terminal()
    first, second = cells(tmp_path)
    with LiveDisplay([first, second], console) as display:
        display.started(first)
        write_epochs(first, 1)
        display.ended(first, "failed", "rank 1 was ended by SIGKILL [oom] " + "x" * 200)
        display.started(second)
        display.ended(second, "completed", "")
    text = console.file.getvalue()
    assert (
        f"{first.config.cell_id()}: failed: rank 1 was ended by SIGKILL [oom] {'x' * 200}" in text
    )
    assert "2 of 2 cells done" in text


@pytest.mark.parametrize("width", [20, 80, 300])
@pytest.mark.parametrize("running", [0, 20, 49])
def test_a_table_of_any_terminals_size_shows_what_runs(tmp_path, width: int, running: int) -> None:
    standing = cells(tmp_path, 50)
    console = terminal(width, 24)
    display = LiveDisplay(standing, console)
    display.started(standing[running])
    console.print(display._table())
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 24
    if width > 20:
        (line,) = [line for line in lines if "running" in line]
        assert f"s{running}-" in line and "0/4" in line and "starting" in line
        assert {*NAMES, "state", "time", "cell"} <= set(" ".join(lines).split())
