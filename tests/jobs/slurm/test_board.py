"""What a person sees: rows that fit, words told once, and nothing twice."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from jobs.cell.state import recorded
from jobs.slurm import board as board_module
from jobs.slurm.board import Board, LiveBoard, PlainBoard, interesting, lines, reasons, table, title
from jobs.slurm.client.squeue import JobState
from jobs.slurm.reconcile import Place
from jobs.slurm.status import CellState
from jobs.slurm.submissions import Submitted
from tests.builders import config, record

AT = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def cell(number: int, state: str, why: str = "", **changes) -> CellState:
    found = CellState(
        cell=f"digits-cnn-naive-g2-s{number}-abcdef", ranks=2, state=state, why=why,
        job=f"7_{number}", slurm=None, nodes=None, expected_start=None, seconds=None, epoch=0,
        epochs=5, train_loss=None, validation_accuracy=None, images_per_s=None, phase=None,
        log=None,
    )  # fmt: skip
    return replace(found, **changes)


RUNS = cell(1, "running", nodes="node[1-2]", seconds=75, epoch=2, train_loss=0.5,
            validation_accuracy=0.75, images_per_s=1234.5)  # fmt: skip
MANY = [
    cell(0, "completed", epoch=5), RUNS, cell(2, "failed", "rank 1 [red] left no error"),
    *(cell(n, "waiting", "other jobs come first", expected_start=f"2026-01-02T04:{n % 60:02d}:00")
      for n in range(3, 2000)),
]  # fmt: skip


def drawn(states: list[CellState], trouble: str | None = None, *, rows: int, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width, height=30).print(table(states, trouble, rows, width=width))
    return out.getvalue()


def test_the_title_counts_what_is_done_and_the_rest() -> None:
    assert title(MANY) == "1 of 2000 cells done: 1 completed; 1997 waiting; 1 running; 1 failed"
    assert title([cell(0, "waiting")]) == "0 of 1 cells done; 1 waiting"


def test_what_runs_and_what_failed_is_shown_first() -> None:
    shown, left = interesting(MANY, 3)
    assert [state.state for state in shown] == ["running", "failed", "waiting"] and left == 1997
    assert interesting(MANY[:3], 10) == (MANY[:3], 0)


def test_2000_cells_take_few_rows_and_say_why_they_wait_once() -> None:
    text = drawn(MANY, "Slurm gives no answer since 12:00:00 UTC", rows=6, width=160)
    assert len(text.splitlines()) <= 6 + 8
    assert text.count("other jobs come first") == 1
    assert "1997 cells waiting: other jobs come first" in text
    assert "expected to start at 2026-01-02T04:00:00" in text
    assert "... and 1994 more cells" in text
    assert "2/5" in text and "0.5000" in text and "1,23" in text and "node[1-2]" in text
    assert "1:15" in text and "since 12:00:00 UTC" in text


def test_texts_are_no_markup() -> None:
    assert "rank 1 [red] left no error" in drawn(MANY, rows=6, width=160)


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_keeps_state_and_numbers(width: int) -> None:
    text = drawn(MANY, rows=6, width=width)
    assert all(len(line) <= width for line in text.splitlines())
    row = next(line for line in text.splitlines() if "running   " in line)
    assert row.split()[1:] == ["running", "2/5", "0.5000", "0.7500", "1,234", "1:15", "7_1"]
    assert row.startswith("..naive-g2-s1-abcdef ")


def test_reasons_that_differ_only_by_the_job_are_one() -> None:
    held = [cell(n, "waiting", f"held: scontrol release 7_{n} lets it start") for n in range(3)]
    assert reasons(held) == ["3 cells waiting: held: scontrol release 7_0 lets it start"]


def test_no_more_reasons_than_fit() -> None:
    many = [cell(n, "failed", f"error {n}") for n in range(40)]
    assert len(reasons(many)) == board_module.MAX_REASONS + 1
    assert "and 35 other reasons" in reasons(many)[-1]


def test_lines_without_a_terminal() -> None:
    text = list(lines(MANY, "no answer", 2))
    assert text[0] == title(MANY) and text[-1] == "no answer"
    assert text[1] == (
        f"  {RUNS.cell}: running, epoch 2/5, loss 0.5000, accuracy 0.7500, images/s 1,234, "
        "time 1:15, job 7_1, on node[1-2]"
    )
    assert text[3] == "  ... and 1998 more cells"


ONE, TWO = config(), config(seed=1)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for each in (ONE, TWO):
        (tmp_path / each.cell_id()).mkdir()
    return tmp_path


def place(sweep: Path, of, state: str | None) -> Place:
    standing = recorded(of, sweep / of.cell_id())
    name = f"7_{of.seed}"
    job = JobState(name, state, "Priority", None, "0:10", "", "x") if state else None
    return Place(standing, job, Submitted(name, Path("/x"), AT))


def board(sweep: Path) -> Board:
    return Board([recorded(each, sweep / each.cell_id()) for each in (ONE, TWO)], lambda: [])


def finish(sweep: Path, of, status: str) -> Place:
    text = record(of, status=status).model_dump_json()
    (sweep / of.cell_id() / "record.json").write_text(text)
    return place(sweep, of, None)


def test_a_board_keeps_what_it_is_not_told_anew(sweep: Path) -> None:
    both = board(sweep)
    both.update([place(sweep, ONE, "RUNNING"), place(sweep, TWO, "PENDING")], None)
    assert [state.state for state in both.all()] == ["starting", "waiting"]
    both.update([], "no answer")
    assert [state.state for state in both.all()] == ["starting", "waiting"]
    assert both.trouble == "no answer"
    both.update([place(sweep, TWO, "PENDING")], None)
    both.ended(finish(sweep, ONE, "completed").standing)
    assert [state.state for state in both.all()] == ["completed", "waiting"]
    assert both.trouble is None


def test_plain_lines_say_each_end_and_do_not_repeat_themselves(sweep: Path, monkeypatch) -> None:
    monkeypatch.setattr(board_module, "PLAIN_PERIOD_S", 0.0)
    out = io.StringIO()
    shown = PlainBoard(board(sweep), out)
    waits = [place(sweep, ONE, "PENDING"), place(sweep, TWO, "PENDING")]
    shown.update(waits, None)
    shown.update(waits, None)
    assert out.getvalue() == (
        "0 of 2 cells done; 2 waiting\n    2 cells waiting: other jobs come first\n"
    )
    shown.ended(finish(sweep, ONE, "failed").standing)
    assert out.getvalue().splitlines()[-1] == f"    {ONE.cell_id()}: failed: w"


def test_plain_lines_come_seldom(sweep: Path) -> None:
    out = io.StringIO()
    shown = PlainBoard(board(sweep), out)
    shown.update([place(sweep, ONE, "PENDING")], None)
    shown.update([place(sweep, ONE, "RUNNING")], None)
    assert "running" not in out.getvalue() and "starting" not in out.getvalue()


def test_a_reader_that_is_gone_ends_nothing(sweep: Path) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    PlainBoard(board(sweep), Gone()).update([place(sweep, ONE, "PENDING")], None)


def test_the_live_table_tells_a_bad_end_above_itself(sweep: Path) -> None:
    out = io.StringIO()
    console = Console(file=out, width=120, height=40, force_terminal=True)
    with LiveBoard(board(sweep), console) as shown:
        shown.update([place(sweep, ONE, "RUNNING"), place(sweep, TWO, "PENDING")], None)
        shown.ended(finish(sweep, ONE, "failed").standing)
        shown.ended(finish(sweep, TWO, "completed").standing)
    assert out.getvalue().count(f"{ONE.cell_id()}: failed: w") == 1
    assert "1 of 2 cells done: 1 completed; 1 failed" in out.getvalue()
