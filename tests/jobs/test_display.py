"""What a person sees of a sweep: before it runs, while cells run, as a table, when it is over."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jobs import display as module
from jobs.cell import state
from jobs.cell.state import MAY_RUN, NEW, RUNNING, STARTING, UNREADABLE, WAITING, CellState
from jobs.config.load import load_sweep
from jobs.display import Display, say_results, say_standing
from jobs.messages import clock
from jobs.table import MAX_REASONS, line, lines, numbers, reasons, table, title
from tests.builders import config, epoch, record
from tests.opened import opened
from train.record.run import RunError

QUICK = load_sweep("quickstart")
ONE = config(epochs=4)


def cell(
    seed: int = 0, status: str = NEW, why: str = "", folder: Path = Path("/nowhere"), **changes
) -> CellState:
    one = config(seed=seed, epochs=4)
    return CellState(one, folder / one.cell_id(), status, why, **changes)


def job(seed: int, state: str, why: str = "", **changes) -> CellState:
    return cell(seed, state, why, job=f"7_{seed}", **changes)


def write_epochs(cell: CellState, count: int, more: str = "", **changes) -> None:
    """``more``: half a line after them."""
    (cell.folder / "logs").mkdir(parents=True, exist_ok=True)
    epochs = [epoch(n + 1, cell.config, **changes).model_dump_json() + "\n" for n in range(count)]
    (cell.folder / "epochs.jsonl").write_text("".join(epochs) + more)


def plain(cells: list[CellState]) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    return Display(cells, "s", Console(file=out)), out


NOW = datetime.now(UTC)


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time does not pass while a test looks."""

    class Still(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return NOW

    for where in (state, module):
        monkeypatch.setattr(where, "datetime", Still)


def spent(display: Display, cell: CellState, seconds: float) -> None:
    """As if the cell had been started so long ago."""
    began_at = NOW - timedelta(seconds=seconds)
    display.cells[cell.name] = replace(display.cells[cell.name], began_at=began_at)


def test_plain_lines(tmp_path: Path, still: None) -> None:
    first, second = cell(0, folder=tmp_path), cell(1, folder=tmp_path)
    display, out = plain([first, second])
    display.started(first)
    display.tick()
    display._next = 0.0
    write_epochs(first, 2)
    spent(display, first, 10)
    display.tick()
    display.ended(first, "completed", "")
    display.started(second)
    display.ended(second, "failed", "rank 1 was ended by SIGKILL")
    numbers = "epoch 2/4, loss 0.5000, accuracy 0.7500, images/s 128, time 0:10"
    assert out.getvalue().splitlines() == [
        f"[1/2] {first.name}: started",
        "0 of 2 cells done; 1 running; 1 waiting",
        f"    {first.name}: running, {numbers}",
        f"    {first.name}: completed, {numbers}",
        f"[2/2] {second.name}: started",
        f"    {second.name}: failed, time 0:00: rank 1 was ended by SIGKILL",
    ]


def test_what_starts_is_said_in_full(tmp_path: Path) -> None:
    display, out = plain([cell(0, RUNNING)])
    display.started(cell(0, RUNNING))
    assert "started by an earlier make sweep, waiting for it" in out.getvalue()
    configs = [config(framework=name) for name in ("horovod", "mirrored")]
    folders = [tmp_path / each.cell_id() for each in configs]
    one = CellState(configs[0], folders[0], "lost")
    other = CellState(configs[1], folders[1], "lost", resume=True)
    display, out = plain([one, other])
    display.started(other)
    words = f"{other.name} (framework mirrored): started (going on from its checkpoint)"
    assert words in out.getvalue()


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time that passes when the test says so, seconds."""
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return sleep


def test_a_queue_that_does_not_move_fills_no_log(passing) -> None:
    waits = [job(n, NEW, "other jobs come first", doing=WAITING, alive=True) for n in (0, 1)]
    display, out = plain(waits)
    display.update(waits, None)
    display.update([replace(waits[0], doing=STARTING, why="")], None)
    said = "0 of 2 cells done; 2 waiting\n    2 cells waiting: other jobs come first\n"
    said += f"    {waits[0].name}: starting, epoch 0/4, job 7_0\n"
    assert out.getvalue() == said, "the second look comes too soon for a summary"
    for _ in range(10):
        passing(1000)
        display.update([], None)
    assert out.getvalue().count("1 starting; 1 waiting") == 1, "others stand as they stood"


def test_without_a_terminal_what_changes_is_printed(tmp_path: Path, passing) -> None:
    """Seen: 64 cells that ran for three days printed 280,000 lines."""
    cells = [job(n, NEW, doing=WAITING, alive=True, folder=tmp_path) for n in range(64)]
    display, out = plain(cells)
    display.update(cells, None)
    started = [replace(cell, doing=RUNNING) for cell in cells]
    for look in range(3 * 24 * 6):
        display.update([replace(cell, nodes=f"n{look}") for cell in started], None)
        passing(600)
    display.update([replace(cells[0], doing=WAITING), *started[1:]], "no answer")
    for cell in started:
        display.ended(cell, "completed", "")
    lines = out.getvalue().splitlines()
    assert len([text for text in lines if ": waiting, " in text]) == 1, "the requeued one"
    assert [text.split(": ")[0].strip() for text in lines[1:65]] == [cell.name for cell in cells]
    assert len([text for text in lines if ": completed" in text]) == 64
    assert len(lines) < 150


def test_a_few_cells_that_run_are_shown_more_and_more_rarely(tmp_path: Path, passing) -> None:
    one = cell(0, folder=tmp_path)
    display, out = plain([one])
    display.started(one)
    for number in range(3600):
        write_epochs(one, number // 10 + 1)
        display.tick()
        passing(1)
    shown = [text for text in out.getvalue().splitlines() if ": running, epoch" in text]
    assert [text.split()[3] for text in shown][:4] == ["4/4,", "7/4,", "13/4,", "25/4,"]
    assert len(shown) == 10


def test_trouble_and_its_end_are_printed_once(passing) -> None:
    waits = [job(0, NEW, "other jobs come first", doing=WAITING, alive=True)]
    display, out = plain(waits)
    for trouble in (None, "no answer (1)", "no answer (2)", None, None):
        display.update(waits if trouble is None else [], trouble)
        passing(1)
    lines = out.getvalue().splitlines()
    assert [text.strip() for text in lines[2:]] == ["no answer (1)", "there is an answer again"]


def test_a_table_reads_a_file_when_it_has_changed_at_a_look(tmp_path: Path, passing) -> None:
    """Seen: epochs.jsonl of every running cell, each second."""
    runs = [job(n, NEW, doing=RUNNING, alive=True, folder=tmp_path) for n in range(10)]
    for one in runs:
        write_epochs(one, 1)
    console = Console(file=io.StringIO(), force_terminal=True, height=40)
    with Display(runs, "s", console) as display, opened(tmp_path) as files:
        display.update(runs, None)
        assert files == [], "what was drawn at first"
        write_epochs(runs[3], 2)
        for _ in range(50):
            display.tick()
            passing(0.01)
        assert files == ["epochs.jsonl"], "by write_epochs itself"
        passing(5)
        display.update(runs, None)
        assert files == ["epochs.jsonl"] * 2


@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [(("completed", "diverged"), 0, "1 completed, 1 diverged"),
     (("completed", NEW), 1, "1 cells did not complete"),
     (("completed", UNREADABLE), 3, "1 cells were left alone"),
     (("completed", MAY_RUN), 3, "1 cells were left alone"),
     (("failed", UNREADABLE), 1, "1 cells did not complete")],
)  # fmt: skip
def test_what_is_said_after(ends: tuple[str, ...], code: int, words: str, capsys) -> None:
    assert say_results(QUICK, [cell(seed, end) for seed, end in enumerate(ends)]) == code
    said = capsys.readouterr().err
    assert words in said and ("did not complete" in said) == (code == 1)
    assert ("left alone" in said) == bool({UNREADABLE, MAY_RUN} & {*ends})


def test_a_cell_that_failed_is_named_with_its_cause_as_it_stands_on_disk_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what, log = "rank 1 ended with exit code 1", ("No module named x",)
    error = RunError(what=what, where="rank 0", what_to_do="look", log_tail=log)
    failed = cell(0, "failed", folder=tmp_path)
    failed.folder.mkdir()
    text = record(failed.config, status="failed", error=error).model_dump_json()
    (failed.folder / "record.json").write_text(text)
    assert say_results(QUICK, [failed]) == 1
    assert capsys.readouterr().err.splitlines()[1] == (
        f"[sweep] {failed.name} failed: {what}; its log ends: No module named x "
        f"(make logs SWEEP=quickstart CELL={failed.name})"
    )


def test_what_is_said_before(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [cell(0, "completed"), cell(1, "failed", "a fault"), cell(2),
             cell(3, "running", "elsewhere"), cell(4, UNREADABLE, "EIO")]  # fmt: skip
    say_standing(QUICK, cells)
    said = capsys.readouterr().err
    assert "5 cells, 3 to run" in said
    assert "(1 completed): these are skipped" in said
    assert "failed (a fault): is run again" in said
    assert "running (elsewhere): waiting for its end" in said
    assert "unreadable record (EIO): is left alone" in said
    assert said.count("[sweep]") == 5


@given(st.integers(0, 30), st.integers(0, 600))
def test_the_last_whole_epoch_is_shown(tmp_path_factory, count: int, cut: int) -> None:
    one = cell(doing=RUNNING, folder=tmp_path_factory.mktemp("s"))
    half = epoch(99, ONE).model_dump_json()
    write_epochs(one, count, half[: cut % len(half)])
    loss = f"epoch {count}/4, loss {1 / max(1, count):.4f}, accuracy 0.7500, images/s 128"
    assert line(one) == f"running, {loss if count else 'epoch 0/4, images/s starting'}"


def test_before_the_first_epoch_the_phase_of_rank_0_is_shown(tmp_path: Path) -> None:
    one = cell(doing=RUNNING, folder=tmp_path)
    write_epochs(one, 0)
    (one.folder / "logs" / "rank-0.beat").write_text('{"phase": "loading", "idle_s": 0.2}')
    assert numbers(one)["images/s"] == "loading"
    assert set(numbers(replace(one, doing=WAITING)).values()) == {"waiting", ""}


def test_a_diverged_epoch_has_no_numbers_to_show(tmp_path: Path) -> None:
    one = cell(0, "diverged", folder=tmp_path)
    write_epochs(one, 1, train_loss=None, validation_accuracy=None, train_s=0.0)
    shown = numbers(one)
    assert (shown["epoch"], shown["loss"], shown["accuracy"]) == ("1/4", "", "")


def test_drawing_is_cheap_however_long_the_run(tmp_path: Path) -> None:
    """It is drawn every second beside ranks that are timed."""
    one = cell(doing=RUNNING, folder=tmp_path)
    write_epochs(one, 3000)
    began = time.process_time()
    assert {numbers(one)["epoch"] for _ in range(100)} == {"3000/4"}
    assert time.process_time() - began < 0.5, "reading it all takes seconds"


@pytest.fixture
def many(tmp_path: Path, still: None) -> list[CellState]:
    """300 cells, of which one runs and has numbers to show."""
    waits = [
        job(n, WAITING, "other jobs come first", expected_start=NOW + timedelta(minutes=n % 60))
        for n in range(3, 300)
    ]
    began_at = NOW - timedelta(seconds=75)
    runs = job(1, NEW, doing=RUNNING, nodes="node[1-2]", began_at=began_at, folder=tmp_path)
    write_epochs(runs, 2, images=1234, train_s=1.0)
    return [job(0, "completed"), runs, job(2, "failed", "rank 1 [red] left no error"), *waits]


def drawn(cells: list[CellState], trouble: str | None = None, *, width: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=22)
    console.print(table(cells, trouble, console, sweep="t"))
    return out.getvalue().splitlines()


def test_300_cells_take_few_rows_and_say_why_they_wait_once(many: list[CellState]) -> None:
    shown = drawn(many, "Slurm gives no answer since 12:00:00 UTC", width=160)
    assert shown[0] == "1 of 300 cells done: 1 completed; 297 waiting; 1 running; 1 failed"
    assert [text.split()[1] for text in shown[2:8]] == ["running", "failed", *["waiting"] * 4]
    assert shown[2].split() == [many[1].name, "running", "2/4", "0.5000", "0.7500", "1,234", "1:15",
                                "7_1", "node[1-2]"]  # fmt: skip
    starts = f"(the first is expected to start at {NOW.astimezone():%Y-%m-%d %H:%M %Z})"
    assert [text.rstrip() for text in shown[8:]] == [
        "... and 294 more cells",
        f"297 cells waiting: other jobs come first {starts}",
        f"{many[2].name} failed: rank 1 [red] left no error",  # texts are no markup
        "Slurm gives no answer since 12:00:00 UTC",
    ]


@pytest.mark.parametrize("width", [20, 80, 100])
def test_a_narrow_terminal_keeps_state_and_numbers(many: list[CellState], width: int) -> None:
    shown = drawn(many, width=width)
    assert all(len(text) <= width for text in shown)
    if width > 20:
        row = next(text for text in shown if "running   " in text)
        assert row.startswith(f"..{many[1].name.removeprefix('digits-cnn-')} ")
        assert row.split()[1:] == ["running", "2/4", "0.5000", "0.7500", "1,234", "1:15", "7_1"]
        here = drawn([cell(0, RUNNING)], width=width)
        names = ["cell", "state", "epoch", "loss", "accuracy", "images/s", "time"]
        assert here[1].split() == names and "0/4" in here[2]


def test_reasons_that_differ_only_by_the_job_or_by_words_of_one_cause_are_one() -> None:
    held = [job(n, WAITING, f"held: scontrol release 7_{n} lets it start") for n in range(3)]
    failed = [job(n, "failed", f"rank {n} ended", cause="rank 0 ended") for n in (1, 2)]
    assert reasons([*held, *failed], sweep="a $b.yaml") == [
        "3 cells waiting: held: scontrol release 7_0 lets it start",
        f"2 cells failed: rank 1 ended (make logs SWEEP='a $$b.yaml' CELL={failed[0].name})",
    ]
    others = reasons([cell(n, "failed", f"error {n}") for n in range(40)], sweep="t")
    assert len(others) == MAX_REASONS + 1 and "and 35 other reasons" in others[-1]


def test_lines_without_a_terminal(many: list[CellState]) -> None:
    text = list(lines(many, "no answer", sweep="t"))
    assert text[0] == title(many) and text[-1] == "no answer"
    assert text[2] == (
        f"  {many[1].name}: running, epoch 2/4, loss 0.5000, accuracy 0.7500, images/s 1,234, "
        "time 1:15, job 7_1, on node[1-2]"
    )
    assert len(text) == 1 + 300 + 2 + 1


def test_spans_of_time() -> None:
    spans = {None: "", 0.4: "0:00", 59.6: "1:00", 65: "1:05", 3600: "1:00:00", 90_061: "25:01:01"}
    assert {seconds: clock(seconds) for seconds in spans} == spans
