"""Cells as a person reads them: rows that fit, reasons once, and nothing twice."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jobs.cell.state import NEW, RUNNING, WAITING, CellState
from jobs.table import MAX_REASONS, choose, line, lines, numbers, reasons, table, title
from tests.builders import config, epoch
from train.config.technique import Technique

ONE = config(epochs=4)


def at(folder: Path, doing: str = RUNNING) -> CellState:
    (folder / ONE.cell_id() / "logs").mkdir(parents=True, exist_ok=True)
    return CellState(ONE, folder / ONE.cell_id(), NEW, doing=doing)


def cell(number: int, state: str, why: str = "", **changes) -> CellState:
    name = f"digits-cnn-naive-g2-s{number}-abcdef"
    return CellState(ONE, Path("/nowhere") / name, state, why, job=f"7_{number}", **changes)


@pytest.fixture
def many(tmp_path: Path) -> list[CellState]:
    """2,000 cells, of which one runs and has numbers to show."""
    name = "digits-cnn-naive-g2-s1-abcdef"
    (tmp_path / name).mkdir()
    last = epoch(2, ONE, images=1234, train_s=1.0)
    (tmp_path / name / "epochs.jsonl").write_text(last.model_dump_json())
    began_at = datetime.now(UTC) - timedelta(seconds=75)
    runs = replace(cell(1, NEW), folder=tmp_path / name, doing=RUNNING, nodes="node[1-2]",
                   began_at=began_at)  # fmt: skip
    waits = [
        cell(n, WAITING, "other jobs come first", expected_start=f"2026-01-02T04:{n % 60:02d}:00")
        for n in range(3, 2000)
    ]
    return [cell(0, "completed"), runs, cell(2, "failed", "rank 1 [red] left no error"), *waits]


def drawn(cells: list[CellState], trouble: str | None = None, *, width: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=22)
    console.print(table(cells, trouble, console, sweep="t"))
    return out.getvalue().splitlines()


@given(st.integers(0, 30), st.integers(0, 600))
def test_the_last_whole_epoch_is_shown(tmp_path_factory, count: int, cut: int) -> None:
    one = at(tmp_path_factory.mktemp("s"))
    half = epoch(99, ONE).model_dump_json()
    text = "".join(epoch(n + 1, ONE).model_dump_json() + "\n" for n in range(count))
    (one.folder / "epochs.jsonl").write_text(text + half[: cut % len(half)])
    loss = f"epoch {count}/4, loss {1 / max(1, count):.4f}, accuracy 0.7500, images/s 128"
    assert line(one) == f"running, {loss if count else 'epoch 0/4, images/s starting'}"


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b"{", b"\xff"])
def test_a_life_sign_of_any_form(tmp_path: Path, text: bytes) -> None:
    one = at(tmp_path)
    (one.folder / "logs" / "rank-0.beat").write_bytes(text)
    assert numbers(one)["images/s"] == "unknown"
    (one.folder / "logs" / "rank-0.beat").write_text('{"phase": "loading", "idle_s": 0.2}')
    assert numbers(one)["images/s"] == "loading"
    assert set(numbers(at(tmp_path, WAITING)).values()) == {"waiting", ""}


def test_a_diverged_epoch_has_no_numbers_to_show(tmp_path: Path) -> None:
    one = replace(at(tmp_path, ""), status="diverged")
    last = epoch(1, ONE, train_loss=None, validation_accuracy=None, train_s=0.0)
    (one.folder / "epochs.jsonl").write_text(last.model_dump_json())
    shown = numbers(one)
    assert (shown["epoch"], shown["loss"], shown["accuracy"]) == ("1/4", "", "")


@pytest.mark.parametrize(("dataset", "shown"), [("digits", "0/6"), ("folder:a", "0")])
def test_all_epochs_are_counted_where_the_images_are_known(tmp_path, dataset, shown) -> None:
    """1,437 digits: 2 x 479 steps of 3 are 5 epochs of 179 steps of 8 and one of 63."""
    row = Technique(name="t", base_lr=1, base_batch=3, regime_adaptation=True)
    one = config(technique=row, dataset=dataset, batch_per_rank=8, epochs=2)
    assert numbers(replace(at(tmp_path), config=one))["epoch"] == shown


def test_drawing_is_cheap_however_long_the_run(tmp_path: Path) -> None:
    """It is drawn every second beside ranks that are timed."""
    one = at(tmp_path)
    text = "".join(epoch(n + 1, ONE).model_dump_json() + "\n" for n in range(3000))
    (one.folder / "epochs.jsonl").write_text(text)
    began = time.process_time()
    assert {numbers(one)["epoch"] for _ in range(100)} == {"3000/4"}
    assert time.process_time() - began < 0.5, "reading it all takes seconds"


def test_2000_cells_take_few_rows_and_say_why_they_wait_once(many: list[CellState]) -> None:
    shown = drawn(many, "Slurm gives no answer since 12:00:00 UTC", width=160)
    text = "\n".join(shown)
    assert [one.state for one in choose(many, 3)] == ["running", "failed", "waiting"]
    assert "1 of 2000 cells done: 1 completed; 1997 waiting; 1 running; 1 failed" in text
    assert len(shown) <= 14
    assert text.count("other jobs come first") == 1
    assert "1997 cells waiting: other jobs come first" in text
    assert "expected to start at 2026-01-02T04:00:00" in text
    assert "... and 1994 more cells" in text
    assert "2/4" in text and "0.5000" in text and "1,234" in text and "node[1-2]" in text
    assert "1:15" in text and "since 12:00:00 UTC" in text
    assert "rank 1 [red] left no error" in text, "texts are no markup"


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_keeps_state_and_numbers(many: list[CellState], width: int) -> None:
    shown = drawn(many, width=width)
    assert all(len(text) <= width for text in shown)
    row = next(text for text in shown if "running   " in text)
    assert row.split()[1:] == ["running", "2/4", "0.5000", "0.7500", "1,234", "1:15", "7_1"]
    assert row.startswith("..naive-g2-s1-abcdef ")


def test_reasons_that_differ_only_by_the_job_or_by_words_of_one_cause_are_one() -> None:
    held = [cell(n, WAITING, f"held: scontrol release 7_{n} lets it start") for n in range(3)]
    failed = [cell(n, "failed", f"rank {n} ended", cause="rank 0 ended") for n in (1, 2)]
    assert reasons([*held, *failed], sweep="a b.yaml") == [
        "3 cells waiting: held: scontrol release 7_0 lets it start",
        f"2 cells failed: rank 1 ended (make logs SWEEP='a b.yaml' CELL={failed[0].name})",
    ]


def test_no_more_reasons_than_fit() -> None:
    said = reasons([cell(n, "failed", f"error {n}") for n in range(40)], sweep="t")
    assert len(said) == MAX_REASONS + 1 and "and 35 other reasons" in said[-1]


def test_lines_without_a_terminal(many: list[CellState]) -> None:
    text = list(lines(many, "no answer", sweep="t"))
    assert text[0] == title(many) and text[-1] == "no answer"
    assert text[2] == (
        f"  {many[1].name}: running, epoch 2/4, loss 0.5000, accuracy 0.7500, images/s 1,234, "
        "time 1:15, job 7_1, on node[1-2]"
    )
    assert len(text) == 1 + 2000 + 2 + 1
