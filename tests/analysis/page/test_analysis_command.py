"""The command line: exit codes, what is printed, and that a wrong request is no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analysis.__main__ import app
from analysis.page.report import build
from analysis.page.terminal import MOST_ROWS
from analysis.records import cache
from analysis.records.cache import FILE as CACHE
from analysis.records.load import load_frames
from tests.analysis.builders import config, failed, record, write_sweep
from tests.analysis.samples import good_sweep, mixed_sweep, rich_sweep

ROOT = Path(__file__).resolve().parents[3]


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_report_writes_and_names_its_files(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    done = call("report", folder)
    assert done.exit_code == 0, done.output
    for name in ("report.html", "answers.json", "junit.xml", "runs.csv", "scaling.csv"):
        assert (folder / "report" / name).stat().st_size > 0
    for name in ("report.html", "answers.json"):
        assert str(folder / "report" / name) in done.output
    assert "All 8 runs finished." in done.output
    assert "1  How far does it scale? At 2 ranks, naive reaches an efficien" in done.output
    assert "lamb ends higher than naive" in done.output


def test_figures_for_a_paper_bring_their_fonts_and_go_with_the_next_report(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    figures = folder / "report" / "figures"
    for kind, sign in (("pdf", b"/FontFile2"), ("png", b"PNG"), ("svg", b"<svg")):
        assert call("report", folder, "--figures", kind).exit_code == 0
        made = (figures / f"efficiency.{kind}").read_bytes()
        assert sign in made and (kind != "svg" or b"<text" not in made)
    assert not (figures / "efficiency.pdf").exists()
    assert call("report", folder, "--figures", "gif").exit_code == 2


def test_a_value_and_its_note_have_a_blank_between_them_on_a_terminal(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [record()], title="a\u00a0b\x1b")
    shown = call("summary", folder).output
    assert "?¹" not in shown and "a\u00a0b?" in shown


@pytest.mark.parametrize("command", ["summary", "report"])
def test_a_terminal_that_is_not_utf_8(tmp_path: Path, command: str) -> None:
    """Seen: a traceback of 95 lines and exit code 1, which means an incomplete cell."""
    folder = good_sweep(tmp_path / "s")
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "analysis", command, str(folder)], capture_output=True, check=False,
        text=True, cwd=ROOT, env=os.environ | plain | {"PYTHONIOENCODING": "ascii:strict"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "lamb ends higher than naive" in done.stdout and done.stdout.isascii()


def test_summary_prints_tables_and_writes_nothing(tmp_path: Path) -> None:
    folder = mixed_sweep(tmp_path / "s")
    done = call("summary", folder)
    assert done.exit_code == 1, done.output
    for text in ("validation accuracy", "efficiency", "baseline", "1 of 3 runs of naive diverged",
                 "rejected", "2 more reasons in the"):  # fmt: skip
        assert text in done.output
    assert not (folder / "report").exists()


def test_summary_of_many_records_writes_no_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "WORTH_IT", 1)
    folder = good_sweep(tmp_path / "s")
    assert call("summary", folder).exit_code == 0
    assert not (folder / "report").exists()
    assert call("report", folder).exit_code == 0
    assert (folder / CACHE).is_file()


def test_summary_prints_every_table_and_of_a_long_one_the_first_rows(tmp_path: Path) -> None:
    folder = rich_sweep(tmp_path / "s")
    done = call("summary", folder)
    assert done.exit_code == 0, done.output
    for table in build(load_frames(folder), draw=False).tables.values():
        assert not len(table.data) or f"\n{table.title}" in done.output, table.title
    items = [record(config(seed=seed)) for seed in range(MOST_ROWS + 2)]
    long = call("summary", write_sweep(tmp_path / "many", items))
    assert items[0].cell_id in long.output and items[-1].cell_id not in long.output
    said = f"{MOST_ROWS} of {MOST_ROWS + 2} rows; make report writes all to report/every_run.csv."
    assert said in long.output


def test_check_prints_every_condition(tmp_path: Path) -> None:
    """It writes no file that would have the others."""
    items = [record(config(f"t{n}")) for n in range(MOST_ROWS + 2)]
    done = call("check", write_sweep(tmp_path / "s", items), "--min-accuracy", "0.3")
    assert f"t{MOST_ROWS + 1} " in done.output and "make report" not in done.output


@pytest.mark.parametrize("command", ["report", "summary"])
def test_no_usable_record_is_three(tmp_path: Path, command: str) -> None:
    done = call(command, write_sweep(tmp_path / "s", [failed(config())]))
    assert done.exit_code == 3
    assert "rank 1 died" in done.output
    assert (tmp_path / "s" / "report" / "report.html").exists() == (command == "report")


@pytest.mark.parametrize("command", ["report", "summary"])
def test_no_sweep_is_two_and_no_traceback(tmp_path: Path, command: str) -> None:
    done = call(command, tmp_path / "quick")
    assert done.exit_code == 2
    assert "make sweep SWEEP=" in done.stderr


def test_a_folder_that_cannot_be_written_is_two(tmp_path: Path) -> None:
    folder = good_sweep(tmp_path / "s")
    (folder / "report").write_text("a file where the folder should be")
    done = call("report", folder)
    assert done.exit_code == 2
    assert "cannot write" in done.stderr


def test_what_notebooks_use_is_loaded_when_it_is_asked_for() -> None:
    program = """
import sys
import analysis
assert not {"pandas", "scipy", "matplotlib"} & set(sys.modules)
from analysis import compare, load_runs, report
assert "pandas" in sys.modules
assert all(callable(f) for f in (compare, load_runs, report))
assert not hasattr(analysis, "nothing")
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize("words", [("report",), ("interconnect",), ("interconnect-baseline",)])
@pytest.mark.parametrize(("uid", "owner"), [(0, "practice"), (0, "ada"), (1001, "practice")])
def test_root_writes_nothing_where_the_practice_user_may_have_planted_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words, uid: int, owner: str
) -> None:
    calls: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(Path, "owner", lambda _: owner)
    monkeypatch.setattr(os, "execv", lambda _, argv: calls.append(argv))
    monkeypatch.setattr(sys, "argv", ["analysis", *words, str(tmp_path)])
    call(*words, tmp_path)  # it holds nothing
    handed_over = [argv[2:] for argv in calls]
    again = ["login", "--", sys.executable, "-m", "analysis", *words, str(tmp_path)]
    assert handed_over == ([again] if (uid, owner) == (0, "practice") else [])
