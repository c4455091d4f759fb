"""What a run leaves on disk: the page and the CSV."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pandas as pd

from analysis.interconnect.report import junit, write_run
from analysis.interconnect.run import Run, pairs_frame
from analysis.interconnect.tables import figures_of, rates_table
from analysis.interconnect.verdict import judge
from tests.analysis.interconnect.runs import (
    CONFIRMED,
    SLOW,
    collectives,
    end,
    leaves,
    measurement,
    node_facts,
    run,
    series,
    tournament,
)
from train.interconnect.collectives.record import WAYS

DEAD = {"rates": (), "error": "no route, to host", "at_sender": None, "at_receiver": None}


def test_pairs_keep_the_numbers_and_the_reasons() -> None:
    changes = {("a", "b"): DEAD, ("a", "c"): {"at_sender": end(carried=1.25)}}
    frame = pairs_frame(tournament(changes=changes))
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False))).set_index(["sender", "receiver"])
    assert len(again) == 12
    assert again.loc["a", "b"]["error"] == "no route, to host"
    assert pd.isna(again.loc["a", "b"]["rate"]) and again.loc["a", "b"]["samples"] == 0
    assert again.loc["a", "c"]["sent_bytes"] == 12_500_000
    assert again.loc["c", "d"]["rate"] == 2e8


def test_all_phases_on_one_page(tmp_path: Path) -> None:
    whole = [series(way, ranks=4, place="out", mode=mode)
             for way in WAYS for mode in ("blocked", "pipelined")]  # fmt: skip
    fewer = [series(way, ranks=ranks) for way in WAYS for ranks in (2, 3, 4)]
    claims = {"speed, Mbit/s": "1000", "driver": "e1000", "duplex": None}
    facts = tuple(node_facts(n, kernel="6.1" if n == "a" else "6.2", **claims) for n in "abcd")
    pairs = tournament(slow=SLOW, retests=CONFIRMED)
    found = Run(tmp_path, None, pairs, collectives(*whole, *fewer), facts)
    text = write_run(found, judge(found)).read_text()
    assert '<span class="status FAIL">FAIL</span>' in text
    assert "scontrol update NodeName=c State=DRAIN" in text
    for key in ("collectives", "model"):
        assert f'<section class="table" id="{key}">' in text
    assert text.count("<svg") == 2 and "80 % of it" in text
    assert "kernel: 6.1; elsewhere 6.2" in text
    assert "<dt>Not known, so not judged</dt><dd>duplex</dd>" in text
    left = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    of_report = ("report.html", "junit.xml", "pairs.csv", "collectives.csv", "nodes.csv")
    assert left == {"verdict.json", *(f"report/{name}" for name in of_report)}
    frame = pd.read_csv(tmp_path / "report" / "collectives.csv")
    assert len(frame) == 10 * 5 and {"busbw", "algbw", "p95_s", "wrong"} <= set(frame.columns)


def test_what_records_say_is_escaped(tmp_path: Path) -> None:
    gone = {"rates": (), "error": "<script>alert(1)</script>"}
    found = Run(tmp_path, None, tournament(changes={("a", "b"): gone}))
    text = write_run(found, judge(found)).read_text()
    # inside the CSV of the page, nothing ends its script
    assert "alert(1)</script>" not in text and "&lt;script&gt;alert(1)" in text
    assert "<script>" not in junit(found, judge(found))


def test_a_run_without_measurements_has_a_page_too(tmp_path: Path) -> None:
    found = Run(tmp_path, None, None)
    text = write_run(found, judge(found)).read_text()
    assert "UNDECIDED" in text and "Nothing was measured." in text


def test_the_matrix_goes_leaf_by_leaf() -> None:
    """The last measurement of a pair counts, and no other phase; what came to nothing is named."""
    found = tournament(switches=leaves("ac", "bd"), changes={("a", "b"): DEAD})
    others = (measurement("c", "d", 1e8), measurement("c", "d", 5e7, phase="retest"))
    found = found.model_copy(update={"measurements": found.measurements + others})
    rows = rates_table(found).shown().rows
    assert rows[0] == ("a", "", "200.0", "none", "200.0") and rows[1][4] == "100.0"
    (figure,) = figures_of(run(found))
    assert re.findall(r">([\d.]{4})<", figure.svg or "").count("1.00") == 10
    assert "url(#h" in (figure.svg or ""), "hatched"
