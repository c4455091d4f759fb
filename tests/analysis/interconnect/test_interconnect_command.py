"""`python -m analysis interconnect`: exit codes, what is shown, what is left on disk."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.interconnect.baseline import read_baseline
from analysis.interconnect.report import show
from analysis.interconnect.verdict import judge as judged
from tests.analysis.interconnect.runs import CONFIRMED, SLOW, node_facts, run, tournament

#: Nothing comes through anywhere.
DEAD = {pair: {"rates": (), "error": "no answer"} for pair in permutations("abcd", 2)}


def judge(folder: Path):
    return CliRunner().invoke(app, ["interconnect", str(folder)])


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({}, 0, "PASS no node"),
        ({"slow": SLOW, "retests": CONFIRMED}, 1, "FAIL node c"),
        ({"slow": SLOW}, 3, "UNDECIDED node c"),
        ({"changes": DEAD}, 1, "FAIL unreachable a"),
    ],
)
def test_exit_codes(tmp_path: Path, fields: dict, code: int, words: str) -> None:
    (tmp_path / "tournament.json").write_text(tournament(**fields).model_dump_json())
    done = judge(tmp_path)
    assert done.exit_code == code and words in done.output
    rate = "none" if "changes" in fields else "200.0"
    assert rate in done.output and "row sends, column receives" in done.output
    assert (
        json.loads((tmp_path / "verdict.json").read_text())["status"] == words.split(maxsplit=1)[0]
    )


def test_a_slow_fabric_does_not_become_the_baseline(tmp_path: Path) -> None:
    """Halved by maintenance, a fabric passes on its own and fails against what was before."""

    def keep(name: str, *options: str, **fields: object):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        facts = node_facts("a", MTU="1500").model_dump_json()
        (folder / "facts-a-before.json").write_text(facts)
        found = tournament(started_at=datetime.now(UTC), **fields)
        (folder / "tournament.json").write_text(found.model_dump_json())
        return CliRunner().invoke(app, ["interconnect-baseline", str(folder), *options])

    assert keep("good").exit_code == 0
    kept = (tmp_path / "baseline.json").read_text()
    halved = keep("halved", slow={("*", n): 0.5 for n in "abcd"})
    assert halved.exit_code == 2 and "found FAIL (fabric)" in halved.output
    assert (tmp_path / "baseline.json").read_text() == kept
    assert judge(tmp_path / "halved").exit_code == 1
    assert keep("halved", "--force", slow={("*", n): 0.5 for n in "abcd"}).exit_code == 0
    slow = keep("slow", slow=SLOW)
    assert slow.exit_code == 2 and "expected PASS" in slow.output


def test_a_baseline_of_unknown_nodes_is_kept_by_force_only(tmp_path: Path) -> None:
    folder = tmp_path / "blind"
    folder.mkdir()
    (folder / "tournament.json").write_text(tournament().model_dump_json())
    command = ["interconnect-baseline", str(folder)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2 and "has no preflight" in done.output
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0


def test_force_replaces_a_baseline_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tournament.json").write_text(tournament().model_dump_json())
    (tmp_path / "baseline.json").write_text('{"half": ')
    command = ["interconnect-baseline", str(tmp_path / "run")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 2 and "baseline.json is broken" in done.output
    assert (tmp_path / "baseline.json").read_text() == '{"half": '
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
    assert read_baseline(tmp_path / "baseline.json").run == "run"


def test_requests_that_are_wrong(tmp_path: Path) -> None:
    done = judge(tmp_path / "none")
    assert done.exit_code == 2 and "no such folder. Expected one of" in done.output
    done = judge(tmp_path)
    assert done.exit_code == 2 and "holds neither tournament.json nor job.json" in done.output
    (tmp_path / "tournament.json").write_text('{"schema_version": 2}')
    done = judge(tmp_path)
    assert done.exit_code == 2 and "is broken or of another version" in done.output
    assert not (tmp_path / "verdict.json").exists()


def test_names_are_text_on_a_terminal() -> None:
    """A name in brackets would be a style of rich, and leave the table."""
    names = ["[red]", "[/bold]", "n[1-2]", "a"]
    found = tournament(names)
    out = Console(width=160, record=True, file=io.StringIO())
    made = run(found)
    show(made, judged(made), out)
    text = out.export_text()
    assert all(text.count(name) >= 2 for name in names)


@pytest.mark.parametrize("text", ["gone\x1b[2J", "\x1b]0;title\x07"])
def test_a_terminal_obeys_nothing_that_a_record_says(text: str) -> None:
    found = run(tournament(changes={("a", "b"): {"rates": (), "error": text}}))
    said = io.StringIO()
    show(found, judged(found), Console(width=160, file=said))
    assert text.replace("\x1b", "?").replace("\x07", "?") in said.getvalue()
