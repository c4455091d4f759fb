"""`python -m train.interconnect.collectives` on two real ranks: every series, and every sum
exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.interconnect.collectives.__main__ import main
from train.interconnect.collectives.plan import plan
from train.interconnect.collectives.record import COLLECTIVES_NAME, Collectives


@pytest.mark.ranks2
def test_two_ranks_measure_all_collectives(start_ranks, tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--largest", "64", "--target-s", "0.001"]
    start_ranks(["-m", "train.interconnect.collectives", *options, "--cap-s", "60"], 2)
    found = Collectives.model_validate_json((tmp_path / COLLECTIVES_NAME).read_text())
    told = [(s.way, s.operation, s.place, s.mode, s.ranks) for s in found.series]
    assert told == [tuple(what) for what in plan(2)]
    for series in found.series:
        assert series.error is None and series.cut is None, series
        step = 1 if series.operation == "all_reduce" else 2
        assert [p.bytes for p in series.points] == [2**k for k in range(3, 7, step)], series
        assert all(p.wrong == 0 for p in series.points), series
        assert all(len(p.seconds) >= 7 and min(p.seconds) > 0 for p in series.points), series
        # both ranks see all bytes of the same loopback
        assert all(c.sent_bytes is not None and c.sent_bytes >= series.payload_bytes
                   for c in series.carried), series  # fmt: skip
    assert found.planned == len(found.series)
    assert (found.nodes, found.controller, len(found.ranks)) == (1, "gloo", 2)
    assert "gloo" in found.stack["horovod built with"]


def test_a_world_of_one_has_nothing_to_measure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--out", str(tmp_path)]) == 2
    assert "found a world of 1 rank, expected two or more" in capsys.readouterr().err


def test_unequal_ranks_per_node_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = {"PROCID": "0", "STEP_NUM_TASKS": "3", "NODEID": "0", "LOCALID": "0",
            "STEP_TASKS_PER_NODE": "2,1"}  # fmt: skip
    for name, value in told.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert main(["--out", str(tmp_path)]) == 2
    assert "found 3 ranks on 2 nodes, 2 on this one: expected equally" in capsys.readouterr().err
