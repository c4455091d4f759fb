"""Every planned cell is either used or listed with its reason; nothing else is used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.load import SweepError, load_sweep
from tests.analysis.builders import config, failed, record, write_sweep

GOOD, OTHER = record(config()), record(config(seed=1))


def reason(folder: Path) -> tuple[str, str]:
    (problem,) = load_sweep(folder).problems
    return problem.kind, problem.reason


def test_usable_records_in_the_order_of_the_plan(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep(tmp_path / "s", [OTHER, GOOD]))
    assert [item.cell_id for item in sweep.records] == [OTHER.cell_id, GOOD.cell_id]
    assert (sweep.problems, sweep.unplanned) == ((), ())
    assert sweep.records[1] == GOOD


def test_a_cell_named_twice_counts_once(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [GOOD], also_planned=[GOOD.cell_id])
    assert len(load_sweep(folder).records) == 1


def test_a_truncated_record_is_unreadable(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [GOOD])
    path = folder / GOOD.cell_id / "record.json"
    path.write_text(path.read_text()[:500])
    kind, why = reason(folder)
    assert kind == "unreadable"
    assert why.startswith("not JSON (truncated?)")
    assert str(tmp_path) not in why


def test_a_record_of_another_schema_is_unreadable(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [GOOD])
    path = folder / GOOD.cell_id / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 0}))
    assert reason(folder) == ("unreadable", "schema_version 0 found, 1 expected")


def test_a_record_that_the_contract_refuses_is_unreadable(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [GOOD])
    path = folder / GOOD.cell_id / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "fine"}))
    kind, why = reason(folder)
    assert kind == "unreadable"
    assert "status" in why


def test_images_that_do_not_add_up_are_rejected(tmp_path: Path) -> None:
    bad = record(config(), epoch_changes={"images": 300})
    kind, why = reason(write_sweep(tmp_path / "s", [bad]))
    assert kind == "rejected"
    assert "300 images processed, yet 20 steps x global batch 16 = 320" in why


@pytest.mark.parametrize("status", ["failed", "timeout", "preempted", "cancelled", "lost"])
def test_an_unfinished_cell_is_listed_with_its_error(tmp_path: Path, status: str) -> None:
    bad = failed(config(), status, what="rank 1 died", rank=1, log_tail=("bye",))
    (problem,) = load_sweep(write_sweep(tmp_path / "s", [bad])).problems
    assert (problem.kind, problem.status, problem.rank) == ("failed", status, 1)
    assert (problem.reason, problem.where, problem.what_to_do) == (
        "rank 1 died", "epoch 2", "see logs/",
    )  # fmt: skip
    assert problem.log_tail == ("bye",)


def test_a_missing_cell_and_how_far_it_came(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [], also_planned=["a", "b", "c"])
    (folder / "b").mkdir()
    (folder / "c").mkdir()
    (folder / "c" / "epochs.jsonl").write_text("{}\n{}\n")
    problems = load_sweep(folder).problems
    assert [problem.kind for problem in problems] == ["missing"] * 3
    never, waiting, running = (problem.reason for problem in problems)
    assert "no folder" in never
    assert "queue" in waiting
    assert "2 finished epochs" in running


def test_a_record_outside_of_the_plan_is_counted_and_not_used(tmp_path: Path) -> None:
    sweep = load_sweep(write_sweep(tmp_path / "s", [GOOD], unplanned=[OTHER]))
    assert sweep.unplanned == (OTHER.cell_id,)
    assert [item.cell_id for item in sweep.records] == [GOOD.cell_id]


@pytest.mark.parametrize("manifest", [None, "", "{", '{"name": "s"}', b"\xff\xfe"])
def test_no_sweep_says_what_to_do(tmp_path: Path, manifest: str | bytes | None) -> None:
    folder = tmp_path / "mysweep"
    folder.mkdir()
    if manifest is not None:
        data = manifest if isinstance(manifest, bytes) else manifest.encode()
        (folder / "sweep.json").write_bytes(data)
    with pytest.raises(SweepError) as caught:
        load_sweep(folder)
    text = str(caught.value)
    assert str(folder) in text
    assert "sweep.json" in text
    assert "make sweep SWEEP=mysweep" in text


def test_no_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=r"no such folder.*make sweep SWEEP=gone"):
        load_sweep(tmp_path / "gone")
