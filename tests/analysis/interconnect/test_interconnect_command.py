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


def keep(folder: Path, *options: str, preflight: bool = True, **fields: object):
    folder.mkdir(exist_ok=True)
    if preflight:
        facts = node_facts("a", MTU="1500").model_dump_json()
        (folder / "facts-a-before.json").write_text(facts)
    found = tournament(started_at=datetime.now(UTC), **fields)
    (folder / "tournament.json").write_text(found.model_dump_json())
    return CliRunner().invoke(app, ["interconnect-baseline", str(folder), *options])


def test_a_slow_fabric_does_not_become_the_baseline(tmp_path: Path) -> None:
    """Halved by maintenance, a fabric passes on its own and fails against what was before."""
    half = {("*", n): 0.5 for n in "abcd"}
    assert keep(tmp_path / "good").exit_code == 0
    kept = (tmp_path / "baseline.json").read_text()
    halved = keep(tmp_path / "halved", slow=half)
    assert halved.exit_code == 2 and "found FAIL (fabric)" in halved.output
    assert (tmp_path / "baseline.json").read_text() == kept
    assert judge(tmp_path / "halved").exit_code == 1
    assert keep(tmp_path / "halved", "--force", slow=half).exit_code == 0
    slow = keep(tmp_path / "slow", slow=SLOW)
    assert slow.exit_code == 2 and "expected PASS" in slow.output


def test_what_is_not_known_to_be_good_is_kept_by_force_only(tmp_path: Path) -> None:
    done = keep(tmp_path / "run", preflight=False)
    assert done.exit_code == 2 and "has no preflight" in done.output
    (tmp_path / "baseline.json").write_text('{"half": ')
    done = keep(tmp_path / "run", preflight=False)
    assert done.exit_code == 2 and "baseline.json is broken" in done.output
    assert (tmp_path / "baseline.json").read_text() == '{"half": '
    assert keep(tmp_path / "run", "--force", preflight=False).exit_code == 0
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


def test_a_terminal_obeys_nothing_that_a_record_says() -> None:
    """A name in brackets would be a style of rich, and leave the table."""
    names, out = ["[red]", "[/bold]", "n[1-2]", "a"], io.StringIO()
    error = {"rates": (), "error": "gone\x1b[2J\x07"}
    found = run(tournament(names, changes={("[red]", "a"): error}))
    show(found, judged(found), Console(width=160, file=out))
    assert all(out.getvalue().count(name) >= 2 for name in names)
    assert "gone?[2J?" in out.getvalue()
