"""The counting of tests/detection.py: what is right, wrong, undecided or missed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tests.detection import FAULTS, FILE, ROOT, Fault, result, table

NODE = frozenset({("node", ("node3",))})
OTHER = frozenset({("node", ("node1",))})
NOBODY: frozenset = frozenset()


@pytest.mark.parametrize(
    ("expected", "status", "named", "told"),
    [
        (NOBODY, "PASS", NOBODY, "right"),
        (NOBODY, "UNDECIDED", NOBODY, "undecided"),
        (NOBODY, "FAIL", OTHER, "wrong"),
        (NODE, "FAIL", NODE, "right"),
        (NODE, "FAIL", NODE | OTHER, "wrong"),
        (NODE, "PASS", NOBODY, "missed"),
        (NODE, "UNDECIDED", NOBODY, "undecided"),
        (None, "UNDECIDED", NOBODY, "right"),
        (None, "FAIL", OTHER, "wrong"),
        (None, "PASS", NOBODY, "missed"),
    ],
)
def test_results(expected: frozenset | None, status: str, named: frozenset, told: str) -> None:
    assert result(Fault("x", (), expected), status, named) == told


def test_the_table_counts_all_runs(tmp_path: Path) -> None:
    rows = [{"fault": "none", "result": "right"}] * 19 + [{"fault": "none", "result": "undecided"}]
    rows += [{"fault": "one node at 50 %", "result": "right"}] * 5
    pd.DataFrame(rows).to_csv(tmp_path / "d.csv", index=False)
    assert table(tmp_path / "d.csv").splitlines()[2:] == [
        "| none | 20 | 19 | 0 | 1 | 0 |",
        "| one node at 50 % | 5 | 5 | 0 | 0 | 0 |",
    ]


def test_the_page_holds_what_was_measured() -> None:
    assert table() in (ROOT / "docs" / "interconnect.md").read_text()
    frame = pd.read_csv(FILE, keep_default_na=False)
    healthy = frame[frame["fault"] == "none"]
    assert len(healthy) >= 20 and set(healthy["result"]) <= {"right", "undecided"}
    assert set(frame["fault"]) == {fault.name for fault in FAULTS}
