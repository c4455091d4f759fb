"""Why cells failed comes first: each cause once, with its cells and the command to read more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from typer.testing import CliRunner

from analysis.__main__ import app
from analysis.page.junit import junit
from analysis.page.report import build
from analysis.page.write import answers_text, render
from analysis.records.load import load_frames
from analysis.topics.topic import Answer
from tests.analysis.builders import config, failed, record, write_sweep
from train.record.run import RunError, RunRecord

LOGS = "job {}: Slurm could not open the job's log (on {})"


def failures(*whats: str, **error: Any) -> list[RunRecord]:
    return [failed(config(seed=seed), what=what, **error) for seed, what in enumerate(whats)]


def first_answer(folder: Path, items: Sequence[RunRecord], **sweep: Any) -> Answer:
    report = build(load_frames(write_sweep(folder, items, **sweep)), draw=False)
    assert report.answers[0].key == "complete"
    told = json.loads(answers_text(report))["answers"][0]
    assert told["text"] == report.answers[0].text
    return report.answers[0]


def logs_of(item: RunRecord, sweep: str = "smoke") -> str:
    return f"make logs SWEEP={sweep} CELL={item.cell_id}"


def test_all_failed_for_one_cause_on_several_hosts(tmp_path: Path) -> None:
    items = failures(*(LOGS.format(n + 11, f"node{n % 4 + 1}") for n in range(6)))
    found = first_answer(tmp_path / "smoke", items)
    assert found.text == (
        "All 6 cells failed, for one reason: job 11, 12, 13 and 3 more: Slurm could not open the "
        f"job's log (on node1, node2, node3 and 1 more) ({logs_of(items[0])} shows more). "
        "What to do: see logs/. Then make sweep SWEEP=smoke runs them again."
    )


def test_what_only_names_and_numbers_tell_apart_is_one_cause(tmp_path: Path) -> None:
    lost = [("lost hydra\nafter 107 s", "hydra.site"), ("lost lerna\nafter 9 s", "lerna")]
    items = [
        record(config(seed=seed), status="failed", accuracies=[],
               error=RunError(what=what, where="x", what_to_do="y"),
               world_changes={"hostnames": (host,)})
        for seed, (what, host) in enumerate(lost)
    ]  # fmt: skip
    text = first_answer(tmp_path / "s", items).text
    assert "for one reason: lost hydra, lerna after 9, 107 s (make logs" in text


def test_several_causes_are_the_most_frequent_first(tmp_path: Path) -> None:
    items = failures(*"aabcdefff")
    found = first_answer(tmp_path / "many", items)
    assert found.verdict.startswith(
        f"All 9 cells failed, for 6 reasons: f (3 cells: {logs_of(items[6], 'many')} shows more)."
    )
    assert "see logs/. 5 more reasons in the table. Then make sweep SWEEP=many runs" in found.text


def test_an_answer_has_at_most_300_characters(tmp_path: Path) -> None:
    """Seen: 3 causes of up to 500 each."""
    items = failures(*("abc"[n] * 400 for n in (0, 0, 1, 2)), what_to_do="do this " * 30)
    found = first_answer(tmp_path / "long", items)
    assert len(found.text) <= 300 and logs_of(items[0], "long") in found.text
    assert "aaa... (2 cells: " in found.text and "What to do: see the table. 2 more" in found.text
    assert found.text.endswith("Then make sweep SWEEP=long runs them again.")


def test_the_last_line_of_the_log_and_no_text_at_all(tmp_path: Path) -> None:
    items = failures("rank 0 ended with exit code 1", log_tail=("Traceback", "ImportError: x", " "))
    text = first_answer(tmp_path / "log", items).text
    assert text.startswith("The only cell failed: rank 0 ended with exit code 1; its log ends: Imp")
    text = first_answer(tmp_path / "silent", failures("", where="", what_to_do="")).text
    assert text.startswith("The only cell failed: its record does not say why (make logs")


def test_what_has_not_run_is_no_failure(tmp_path: Path) -> None:
    found = first_answer(tmp_path / "smoke", [record()], also_planned=["digits-x", "digits-y"])
    assert found.text == (
        "1 of 3 planned cells is usable (2 missing). The next make sweep SWEEP=smoke runs the rest."
    )


BAD = "`rm -rf` [red]$(id)[/red] \x1b[31m"


def test_names_and_errors_are_text(tmp_path: Path) -> None:
    folder = tmp_path / "a $(id) 'x'"
    items = failures(BAD, BAD, what_to_do="set it,\nthen \x1b[31mrun it.")
    text = first_answer(folder, items, title=BAD).text
    assert "\x1b" not in text and "What to do: set it, then ?[31mrun it. Then" in text
    assert """SWEEP='a $$(id) '"'"'x'"'"'' CELL=""" in text, "for make, then for the shell"
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 3 and "[red]$(id)[/red]" in done.output
    assert "\x1b[31m" not in done.output


def test_every_form_has_the_cause_and_the_command_and_none_says_it_twice(tmp_path: Path) -> None:
    items = failures(*["a very special reason"] * 3, log_tail=("the end of it",))
    folder = write_sweep(tmp_path / "smoke", items)
    done = CliRunner().invoke(app, ["report", str(folder)])
    report = build(load_frames(folder), draw=False)
    line, written = "a very special reason; its log ends: the end of it", render(report)
    for form in (done.output, written):
        assert form.count(line) == 1 and logs_of(items[0]) in form
        assert 0 < form.index(report.answers[0].question) < form.index(line)
    assert done.output.count("a very special reason") == 1
    assert written.count("<pre") == 1, "one log of a cause"
    cases = Xml.fromstring(junit(report.frames)).iter("failure")
    for case, item in zip(cases, items, strict=True):
        assert case.get("message") == line and logs_of(item) in (case.text or "")


def test_a_sweep_without_a_run_has_no_empty_file(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", failures("a hang"))
    CliRunner().invoke(app, ["report", str(folder)])
    out = folder / "report"
    assert all(len(file.read_text().splitlines()) > 1 for file in out.rglob("*.csv"))
    assert not (out / "runs.csv").exists() and (out / "cells_not_used.csv").exists()
    assert "runs.csv" not in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([record(config(name), accuracies=[0.3, 0.5, end])
          for name, end in (("naive", 0.98), ("lamb", 0.99), ("lars", 0.991))],
         "All 3 runs finished. Accuracy is 0.98 to 0.99 on 360 held-out images."),
        ([record(), record(config("lamb"), status="diverged", accuracies=[0.2, None])],
         "Both runs finished, 1 of them diverged. Accuracy is 0.40 on 360 held-out images."),
        ([record(dataset) for dataset in (config(), config(dataset="mnist"))],
         "Both runs finished."),
        ([record(), failed(config(seed=1))], ""),
        ([record()], "The run finished. Accuracy is 0.40 on 360 held-out images."),
    ],
)  # fmt: skip
def test_the_first_line_of_a_sweep_that_finished(
    tmp_path: Path, items: list[RunRecord], said: str
) -> None:
    order = dict.fromkeys(item.config.technique.name for item in items)
    folder = write_sweep(tmp_path / "s", items, techniques=[*order])
    report = build(load_frames(folder), draw=False)
    assert report.lead == said
    assert said in render(report)
    assert json.loads(answers_text(report))["lead"] == said
