"""Every planned cell is either used or listed with its reason; nothing else is used."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from analysis.records import load
from analysis.records.columns import FRAMES
from analysis.records.load import SweepError, load_frames
from analysis.table import types
from jobs.slurm.submissions import Array, RunNote, write_note
from tests.analysis.builders import (
    START,
    config,
    failed,
    record,
    technique,
    write_sweep,
)
from tests.analysis.samples import mixed_sweep

GOOD, OTHER = record(config()), record(config(seed=1))


def reason(folder: Path) -> tuple[str, str]:
    (problem,) = load_frames(folder).problems
    return problem.kind, problem.reason


def test_usable_records_in_the_order_of_the_plan(tmp_path: Path) -> None:
    """Of which one names a cell twice, and forgot a technique, which is the last."""
    items = [OTHER, record(config("extra")), GOOD]
    folder = write_sweep(tmp_path / "s", items, also_planned=[GOOD.cell_id], techniques=["naive"])
    sweep = load_frames(folder)
    assert sweep.runs["cell_id"].tolist() == [item.cell_id for item in items]
    assert (sweep.problems, sweep.unplanned) == ((), ())
    assert sweep.techniques == ("naive", "extra")
    assert load.read_cell(folder, GOOD.cell_id) == GOOD


def _with(**changes: object) -> str:
    return json.dumps(json.loads(GOOD.model_dump_json()) | changes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOD.model_dump_json()[:500], "not JSON (truncated?)"),
        (_with(schema_version=0), "schema_version 0 found, 1 expected"),
        (_with(status="fine"), "status"),
    ],
)
def test_what_is_no_record_of_this_contract_is_unreadable(
    tmp_path: Path, text: str, words: str
) -> None:
    folder = write_sweep(tmp_path / "s", [GOOD])
    (folder / GOOD.cell_id / "record.json").write_text(text)
    kind, why = reason(folder)
    assert kind == "unreadable" and words in why and str(tmp_path) not in why


@pytest.mark.parametrize("status", ["failed", "timeout", "preempted", "cancelled", "lost"])
def test_an_unfinished_cell_is_listed_with_its_error(tmp_path: Path, status: str) -> None:
    bad = failed(config(), status, what="rank 1 died", rank=1, log_tail=("bye",))
    (problem,) = load_frames(write_sweep(tmp_path / "s", [bad])).problems
    assert (problem.kind, problem.status, problem.rank) == ("failed", status, 1)
    assert (problem.reason, problem.where, problem.what_to_do) == (
        "rank 1 died", "epoch 2", "see logs/",
    )  # fmt: skip
    assert problem.log_tail == ("bye",)


def test_a_missing_cell_and_how_far_it_came(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [], also_planned=["a", "b", "c"])
    (folder / "b").mkdir()
    (folder / "c").mkdir()
    lines = [f"{epoch.model_dump_json()}\n" for epoch in GOOD.epochs[:2]]
    (folder / "c" / "epochs.jsonl").write_text("".join([*lines, '{"epoch": 3, "att']))
    problems = load_frames(folder).problems
    assert [problem.kind for problem in problems] == ["missing"] * 3
    never, waiting, running = (problem.reason for problem in problems)
    assert "no folder" in never
    assert "queue" in waiting
    assert "2 finished epochs" in running


@pytest.mark.parametrize("name", ["x" * 256, "a\0b", "../other", "..", ".hidden", "", "a/b"])
def test_a_cell_that_cannot_be_a_folder_is_no_sweep(tmp_path: Path, name: str) -> None:
    folder = write_sweep(tmp_path / "s", [record()], also_planned=["a-cell"])
    file = folder / "sweep.json"
    file.write_text(file.read_text().replace('"a-cell"', json.dumps(name)))
    with pytest.raises(SweepError, match=r"not a manifest of a sweep: cells\.1"):
        load_frames(folder)


def test_a_folder_whose_name_is_no_text_is_left_out(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [record()], unplanned=[record(config("lamb"))])
    shutil.copytree(folder / record().cell_id, folder / os.fsdecode(b"caf\xe9"))
    assert load_frames(folder).unplanned == (config("lamb").cell_id(),)


def test_a_record_that_cannot_be_looked_for_is_unreadable(tmp_path: Path) -> None:
    """As in a folder that may not be searched: here its link leads to a name that is too long."""
    lost, other = config("lamb"), config("lamb", seed=1)
    folder = write_sweep(tmp_path / "s", [record()], also_planned=[lost.cell_id()])
    for cell in (lost, other):
        (folder / cell.cell_id()).mkdir()
        (folder / cell.cell_id() / "record.json").symlink_to("x" * 300)
    (problem,) = load_frames(folder).problems
    assert (problem.kind, problem.cell_id) == ("unreadable", lost.cell_id())
    assert "cannot be read" in problem.reason
    assert problem.what_to_do == "make it readable: make sweep leaves it alone until then"


@pytest.mark.parametrize("manifest", [None, "", "{", '{"name": "s"}', b"\xff\xfe"])
def test_no_sweep_says_what_to_do(tmp_path: Path, manifest: str | bytes | None) -> None:
    folder = tmp_path / "mysweep"
    folder.mkdir()
    if manifest is not None:
        data = manifest if isinstance(manifest, bytes) else manifest.encode()
        (folder / "sweep.json").write_bytes(data)
    with pytest.raises(SweepError, match=r"(?s)mysweep/sweep\.json: .*make sweep SWEEP=<sweep>"):
        load_frames(folder)


@pytest.mark.parametrize("planned", [0, 2])
def test_frames_without_a_usable_run_have_all_columns(tmp_path: Path, planned: int) -> None:
    items = [failed(config(seed=seed)) for seed in range(planned)]
    frames = load_frames(write_sweep(tmp_path / "s", items))
    assert len(frames.planned) == len(frames.problems) == planned
    for name, columns in FRAMES.items():
        found = getattr(frames, name)
        assert found.dtypes.astype(str).to_dict() == types(columns), name
        assert name == "planned" or not len(found)


def test_every_planned_cell_has_a_state_and_the_config_that_can_be_known(tmp_path: Path) -> None:
    cells = {
        "usable": record(config("lamb")),
        "failed": failed(config(gpus=2)),
        "rejected": record(config(seed=1), epoch_changes={"images": 1}),
        "unreadable": record(config(seed=2)),
        "missing": record(config("lars", seed=3)),
    }
    folder = write_sweep(tmp_path / "s", cells.values(), also_planned=["never-started", "other"])
    (folder / "other").mkdir()
    (folder / "other" / "config.json").write_text(OTHER.config.model_dump_json())
    (folder / cells["unreadable"].cell_id / "record.json").write_text("{")
    (folder / cells["missing"].cell_id / "record.json").unlink()
    (folder / cells["failed"].cell_id / "config.json").unlink()
    planned = load_frames(folder).planned.set_index("cell_id")
    assert planned["state"].tolist() == [*cells, "missing", "missing"]
    assert planned["known"].tolist() == [True] * 5 + [False] * 2, "a config of another cell is none"
    assert planned["technique"][:5].tolist() == ["lamb", "naive", "naive", "naive", "lars"]
    assert planned["gpus"][:5].tolist() == [1, 2, 1, 1, 1]
    assert planned.loc["never-started"].drop(["state", "known"]).isna().all()
    runs = load_frames(folder).runs.set_index("cell_id")
    same = [name for name in planned if name in runs]
    pd.testing.assert_frame_equal(runs[same], planned.loc[runs.index, same])


@pytest.mark.parametrize("other", [OTHER, failed(config(seed=2))])
def test_a_record_of_another_cell_says_nothing_but_whose_it_is(tmp_path: Path, other) -> None:
    folder = write_sweep(tmp_path / "s", [GOOD])
    (folder / GOOD.cell_id / "record.json").write_text(other.model_dump_json())
    assert reason(folder) == ("rejected", f"the record belongs to cell {other.cell_id}")
    (row,) = load_frames(folder).planned.to_dict("records")
    assert (row["cell_id"], row["seed"], row["known"]) == (GOOD.cell_id, 0, True)
    assert pd.isna(row["epochs_run"])


def test_the_sites_of_a_sweep_are_those_of_its_submissions(tmp_path: Path) -> None:
    """As jobs writes them; what cannot be read is left out."""
    folder = write_sweep(tmp_path / "s", [GOOD])
    assert load_frames(folder).sites == ()
    arrays = (Array(job_id="7", cells=(GOOD.cell_id,), nodes=1, ranks_per_node=1, minutes=9),)
    for run, site in (("r1", "alps"), ("r2", "dom"), ("r3", "alps")):
        write_note(folder, RunNote(run=run, site=site, job_name="n", submitted_at=START,
                                   arrays=arrays))  # fmt: skip
    (folder / ".slurm" / "broken.json").write_text("{")
    assert load_frames(folder).sites == ("alps", "dom")


def test_labels_tell_apart_what_is_planned_not_only_what_came_back(tmp_path: Path) -> None:
    other = config(technique=technique("naive", base_lr=0.2), seed=1)
    frames = load_frames(write_sweep(tmp_path / "s", [GOOD, failed(other)]))
    assert frames.runs["technique_label"].tolist() == ["naive (base_lr=0.1)"]
    assert frames.planned["technique_label"].tolist() == [
        "naive (base_lr=0.1)", "naive (base_lr=0.2)"
    ]  # fmt: skip


def test_several_processes_find_what_one_does(tmp_path: Path, monkeypatch) -> None:
    folder = mixed_sweep(tmp_path / "s")
    alone = load_frames(folder)
    monkeypatch.setattr(load, "_FEW", 1)
    monkeypatch.setattr(load, "_CHUNK", 2)
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda pid: {0, 1})
    together = load_frames(folder)
    for name in FRAMES:
        pd.testing.assert_frame_equal(getattr(together, name), getattr(alone, name))
    assert together.problems == alone.problems
