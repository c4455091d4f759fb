"""Which findings of a preflight hold a sweep."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from train.distributed.preflight.report import LATE, Finding, RankPreflight, problems, read_reports

BAD = Finding(check="/tmp", ok=False, found="read-only", expected="writable", fix="bind it")
WAITED = Finding(check=LATE, ok=False, found="still waiting", expected="all meet", fix="look")
UNKNOWN = Finding(check="PMIx", ok=None, found="?", expected="there", fix="")


def report(procid: int, *findings: Finding, host: str = "n1", **changes: object) -> RankPreflight:
    values = {
        "host": host, "procid": procid, "phase": "done", "late": False,
        "started_at": datetime(2026, 1, 2, tzinfo=UTC), "duration_s": 1.0, "pmix": True,
        "versions": {}, "built": {}, "launcher": "srun", "size": 2, "rank": procid,
        "local_rank": 0, "cross_rank": procid, "interface": "eth0", "carried": {}, "gpus": (),
        "driver": None, "visible_devices": None, "findings": findings,
    }  # fmt: skip
    return RankPreflight(**(values | changes))


def test_all_well() -> None:
    assert problems([report(0), report(1, UNKNOWN)], 2) == ()


def test_equal_findings_of_a_host_are_told_once() -> None:
    found = problems([report(0, BAD), report(1, BAD), report(2, BAD, host="n2")], 3)
    assert found == (("n1", BAD), ("n2", BAD))


def test_waiting_in_vain_is_no_cause_where_there_is_one() -> None:
    late = report(1, WAITED, phase="meeting the others", late=True, host="n2")
    assert problems([report(0, BAD), late], 2) == (("n1", BAD),)
    assert problems([report(0), late], 2) == (("n2", WAITED),)


@pytest.mark.parametrize("phase", ["meeting the others", "all-reduce"])
def test_a_rank_that_dies_for_want_of_another_is_no_cause(phase: str) -> None:
    """Horovod ends it in native code, as soon as the other's end of a connection is gone."""
    died = report(1, phase=phase, host="n2")
    assert problems([report(0, BAD), died], 2) == (("n1", BAD),)
    ((node, finding),) = problems([report(0, phase="done"), died], 2)
    assert (node, finding.check) == ("n2", "end")
    assert len(problems([report(0, BAD), report(1, phase="importing", host="n2")], 2)) == 2


def test_a_suspicion_counts_where_ranks_did_not_come_to_their_end() -> None:
    """MPI may take another network than the one that is broken."""
    lost = Finding(check="MTU", ok=None, found="n1 -> n2: packets", expected="", fix="switch")
    assert problems([report(0, lost), report(1)], 2) == ()
    late = report(1, WAITED, phase="meeting the others", late=True, host="n2")
    assert problems([report(0, lost), late], 2) == (("n1", lost),)


def test_of_killed_ranks_only_what_they_had_found_is_a_problem() -> None:
    """What they did not come to follows from their end; a path that fails does not."""
    path = Finding(check="MTU", ok=False, found="packets are lost", expected="", fix="switch")
    died = report(0, path, WAITED, phase="importing")
    assert problems([died], 2, killed=True) == (("n1", path),)
    assert problems([report(0, phase="importing")], 2, killed=True) == ()


def test_a_rank_that_died_or_never_came_is_a_problem() -> None:
    ((_, died),) = problems([report(0, phase="meeting the others"), report(1)], 2)
    assert "died in its phase 'meeting the others'" in died.found
    ((_, missing),) = problems([report(0)], 2)
    assert "1 of 2 ranks" in missing.found and "n1" in missing.found


def test_reports_are_read_in_order_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    for number in (10, 2):
        (tmp_path / f"rank-{number}.json").write_text(report(number).model_dump_json())
    nameless = report(0).model_copy(update={"procid": None})
    (tmp_path / "rank-n1-77.json").write_text(nameless.model_dump_json())
    (tmp_path / "rank-3.json").write_text("{")
    assert [found.procid for found in read_reports(tmp_path)] == [2, 10, None]
