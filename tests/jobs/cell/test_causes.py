"""Failed cells are told by cause, each once, with the last line of the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.cell.state import cause_line, cause_of_line, recorded
from jobs.config.load import load_sweep
from jobs.display import say_results
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


@pytest.mark.parametrize(
    ("what", "log", "line"),
    [
        ("a hang", (), "a hang"),
        ("rank 0 ended with exit code 1", ("Traceback", "ImportError: no x", "", "  "),
         "rank 0 ended with exit code 1; its log ends: ImportError: no x"),
        ("ValueError: x", ("...", "ValueError: x"), "ValueError: x"),
        ("ValueError", ("ValueError: x, and why",), "ValueError: x, and why"),
        ("a crash", ("y" * 1000,), f"a crash; its log ends: {'y' * 300}"),
    ],
)  # fmt: skip
def test_the_line_of_a_cause(what: str, log: tuple[str, ...], line: str) -> None:
    error = RunError(what=what, where="x", what_to_do="y", log_tail=log)
    assert cause_line(record(status="failed", error=error)) == line
    assert cause_line(record()) == ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rank 0 was ended by SIGKILL", "rank 13 was ended by SIGKILL"),
        ("connect to alpha:4711 refused", "connect to beta.site:5012 refused"),
        ("read /r/{cell}/logs/rank-0.log", "read /r/{cell}/logs/rank-1.log"),
        ("job 17_2: a node failed (on node[1-2])", "job 18: a node failed (on node[3,5-7])"),
        ("no /r/.submitit/20260102T030405-12/x", "no /r/.submitit/20260203T040506-7/x"),
        ("at 0x7f3a of 3f9a1c07", "at 0x11 of 00ffa1b2"),
        ("2026-01-02 03:04:05.6: nan in epoch 3", "2026-01-03 13:14:15.7: nan in epoch 12"),
        ("it did not start on node alpha: full", "it did not start on node beta: full"),
    ],
)  # fmt: skip
def test_names_and_numbers_do_not_split_a_cause(one: str, other: str) -> None:
    lines = []
    for seed, (text, host) in enumerate([(one, "alpha"), (other, "beta.site")]):
        made = record(config(seed=seed))
        world = made.world.model_copy(update={"hostnames": (host, f"{host}-ib")})
        line = text.format(cell=made.cell_id)
        lines.append(cause_of_line(line, made.model_copy(update={"world": world})))
    assert lines[0] == lines[1]


def test_other_words_are_another_cause() -> None:
    made = record()
    assert cause_of_line("out of memory", made) != cause_of_line("out of disk", made)


def test_the_last_words_of_a_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = [
        failed(tmp_path, 0, "RuntimeError: one of its own"),
        *(failed(tmp_path, n, f"rank {n} ended with exit code 1", f"No module named x on h{n}",
                 hosts=(f"h{n}",)) for n in range(1, 4)),
        recorded(config(seed=9), tmp_path / "absent"),
    ]  # fmt: skip
    cells[4] = replace(cells[4], status="completed")
    assert say_results(QUICK, cells) == 1
    said = capsys.readouterr().err.splitlines()
    first = cells[1].config.cell_id()
    assert said[1] == (
        "[sweep] 3 cells failed: rank 1 ended with exit code 1; its log ends: No module named x "
        f"on h1 (make logs SWEEP=quickstart CELL={first})"
    )
    assert said[2].startswith(
        f"[sweep] {cells[0].name} failed: RuntimeError: one of its own (make logs"
    )
    assert len(said) == 4


def test_a_diverged_run_is_no_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = failed(tmp_path, 0, "the loss is infinite")
    assert say_results(QUICK, [replace(cell, status="diverged")]) == 0
    assert "make logs" not in capsys.readouterr().err
