"""What a person sees of a sweep before it runs, while cells run, and when it is over."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from jobs import display as module
from jobs.cell.state import NEW, RUNNING, STARTING, UNREADABLE, WAITING, CellState
from jobs.config.load import load_sweep
from jobs.display import Display, say_results, say_standing
from tests.builders import config, epoch
from train.config.technique import Technique

QUICK = load_sweep("quickstart")


def cells(folder: Path, count: int = 2, status: str = NEW) -> list[CellState]:
    configs = [config(seed=seed, epochs=4) for seed in range(count)]
    found = [CellState(one, folder / one.cell_id(), status) for one in configs]
    for cell in found:
        (cell.folder / "logs").mkdir(parents=True)
    return found


def write_epochs(cell: CellState, count: int) -> None:
    text = "".join(epoch(n + 1, cell.config).model_dump_json() + "\n" for n in range(count))
    (cell.folder / "epochs.jsonl").write_text(text)


def plain(cells: list[CellState]) -> tuple[Display, io.StringIO]:
    out = io.StringIO()
    return Display(cells, "s", Console(file=out)), out


def terminal(width: int = 120, height: int = 30) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(
        file=out, force_terminal=True, width=width, height=height, color_system=None
    ), out


def spent(display: Display, cell: CellState, seconds: float) -> None:
    """As if the cell had been started so long ago."""
    began_at = datetime.now(UTC) - timedelta(seconds=seconds)
    display.cells[cell.name] = replace(display.cells[cell.name], began_at=began_at)


def test_plain_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = cells(tmp_path)
    display, out = plain([first, second])
    display.started(first)
    display.tick()
    monkeypatch.setattr(module, "PERIOD_S", 0.0)
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
        "0 of 2 cells done; 1 running; 1 waiting; left 0:17",  # 2 x 1.75 s, then as long as that
        f"    {first.name}: running, {numbers}",
        f"    {first.name}: completed, {numbers}; left 0:10",
        f"[2/2] {second.name}: started",
        f"    {second.name}: failed, time 0:00; left 0:00: rank 1 was ended by SIGKILL",
    ]


def test_what_starts_is_said_in_full(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, 1, RUNNING)
    display, out = plain([cell])
    display.started(cell)
    assert "started by an earlier make sweep, waiting for it" in out.getvalue()
    configs = [config(framework=name) for name in ("horovod", "mirrored")]
    one, other = (CellState(each, tmp_path / each.cell_id(), "lost") for each in configs)
    other.folder.mkdir()
    (other.folder / "checkpoint.npz").touch()
    display, out = plain([one, other])
    display.started(other)
    words = f"{other.name} (framework mirrored): started (going on from its checkpoint)"
    assert words in out.getvalue()


def job(cell: CellState, doing: str, why: str = "") -> CellState:
    return replace(cell, doing=doing, why=why, job="7", alive=True)


def test_a_queue_that_does_not_move_fills_no_log(tmp_path: Path, monkeypatch) -> None:
    both = cells(tmp_path)
    display, out = plain([job(cell, WAITING) for cell in both])
    waits = [job(cell, WAITING, "other jobs come first") for cell in both]
    display.update(waits, None)
    display.update([job(both[0], STARTING)], "no answer")
    said = "0 of 2 cells done; 2 waiting\n    2 cells waiting: other jobs come first\n"
    assert out.getvalue() == said, "the second look comes too soon"
    monkeypatch.setattr(module, "PERIOD_S", 0.0)
    display._next = 0.0
    display.update([], "no answer")
    display.update([], "no answer")
    assert out.getvalue().count("1 starting; 1 waiting") == 1, "others stand as they stood"
    assert out.getvalue().endswith("    no answer\n")
    display.update([], None)
    assert display.trouble is None


def test_a_reader_that_is_gone_ends_nothing(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    (cell,) = cells(tmp_path, 1)
    out = os.fdopen(write, "w")
    display = Display([cell], "", Console(file=out))
    display.started(cell)
    display.update([cell], "no answer")
    display.ended(cell, "failed", "x")
    with pytest.raises(BrokenPipeError):
        out.close()


def test_remaining_time_is_that_of_cells_of_the_same_size(tmp_path: Path) -> None:
    sizes = [1, 1, 2, 2, 4]
    configs = [config(gpus=gpus, seed=seed) for seed, gpus in enumerate(sizes)]
    waits = [CellState(one, tmp_path / one.cell_id(), NEW) for one in configs]
    display, _ = plain(waits)
    assert display.left_s() is None
    for index, took_s in ((0, 10), (2, 20)):
        spent(display, waits[index], took_s)
        display.ended(waits[index], "completed", "")
    assert display.left_s() == pytest.approx(10 + 20 + 15, abs=0.1)
    display.started(waits[1])
    spent(display, waits[1], 4)
    assert display.left_s() == pytest.approx(6 + 20 + 15, abs=0.1)
    spent(display, waits[1], 400)
    assert display.left_s() == pytest.approx(20 + 15, abs=0.1), "never less than nothing"
    display.update([replace(waits[4], job="7")], None)
    assert display.left_s() is None, "a cluster runs cells side by side"


def test_remaining_time_of_a_cell_that_runs_is_that_of_its_epochs(tmp_path: Path) -> None:
    """1,437 digits: 2 x 479 steps of 3 images are 5 epochs of 179 steps of 8 and one of 63."""
    row = Technique(name="t", base_lr=1, base_batch=3, regime_adaptation=True)
    for dataset, planned in (("digits", 6), ("folder:a", None)):
        one = config(technique=row, dataset=dataset, batch_per_rank=8, epochs=2)
        cell = CellState(one, tmp_path / one.cell_id(), NEW)
        cell.folder.mkdir()
        display, _ = plain([cell])
        display.started(cell)
        assert display.left_s() is None
        write_epochs(cell, 2)
        left_s = display.left_s()
        assert left_s is None if planned is None else left_s == pytest.approx(4 * 1.75, abs=0.1)
        write_epochs(cell, 7)
        assert display.left_s() in (None, pytest.approx(0, abs=0.1)), "never less"


def test_the_live_table_tells_why_a_cell_failed(tmp_path: Path) -> None:
    console, out = terminal()
    first, second = cells(tmp_path)
    why = "rank 1 was ended by SIGKILL [oom] " + "x" * 200
    with Display([first, second], "", console) as display:
        display.started(first)
        write_epochs(first, 1)
        display.ended(first, "failed", why)
        display.started(second)
        display.ended(second, "completed", "")
    assert f"{first.name}: failed: {why}" in out.getvalue()
    assert "1 of 2 cells done: 1 completed; 1 failed" in out.getvalue()
    assert f"{second.name}: completed" not in out.getvalue()


@pytest.mark.parametrize("width", [20, 80, 300])
@pytest.mark.parametrize("running", [0, 49])
def test_a_table_of_any_terminals_size_shows_what_runs(tmp_path, width: int, running: int) -> None:
    standing = cells(tmp_path, 50)
    console, out = terminal(width, 24)
    display = Display(standing, "", console)
    display.started(standing[running])
    console.print(display.table())
    lines = out.getvalue().splitlines()
    assert len(lines) <= 24
    if width > 20:
        (line,) = [line for line in lines if "running  " in line]
        assert f"s{running}-" in line and "0/4" in line and "starting" in line
        names = {"cell", "state", "epoch", "loss", "accuracy", "images/s", "time"}
        assert names <= set(" ".join(lines).split()) and "job" not in lines[1]


def standing(status: str, seed: int = 0, why: str = "because") -> CellState:
    one = config(seed=seed)
    return CellState(one, Path("/nowhere") / one.cell_id(), status, why)


@pytest.mark.parametrize(
    ("ends", "code", "words"),
    [(("completed", "diverged"), 0, ["1 completed, 1 diverged"]),
     (("completed", "failed"), 1, ["1 cells did not complete"]),
     (("completed", NEW), 1, ["1 cells did not complete"]),
     (("completed", UNREADABLE), 3, ["1 completed, 1 unreadable record", "1 cells were left"]),
     (("failed", UNREADABLE), 1, ["1 cells did not complete", "1 cells were left alone"])],
)  # fmt: skip
def test_what_is_said_after(ends: tuple[str, ...], code: int, words: list[str], capsys) -> None:
    assert say_results(QUICK, [standing(end, seed) for seed, end in enumerate(ends)]) == code
    said = capsys.readouterr().err
    assert all(text in said for text in words)
    assert ("did not complete" in said) == (code == 1)


def test_what_is_said_before(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [standing("completed"), standing("failed", 1, "a fault"), standing("new", 2),
             standing("running", 3, "elsewhere"), standing(UNREADABLE, 4, "EIO")]  # fmt: skip
    say_standing(QUICK, cells)
    said = capsys.readouterr().err
    assert "5 cells, 3 to run" in said
    assert "(1 completed): these are skipped" in said
    assert "failed (a fault): is run again" in said
    assert "running (elsewhere): waiting for its end" in said
    assert "unreadable record (EIO): is left alone" in said
    assert said.count("[sweep]") == 5
