"""Node-hours by what came of them, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest

from analysis.page.report import build
from analysis.records.frames import Frames
from analysis.records.load import load_frames
from analysis.topics.cells import usage
from jobs.slurm.submissions import Array, RunNote, write_note
from tests.analysis.builders import START, config, failed, record, world, write_sweep
from train.record.run import Attempt, RunRecord, Status

HOUR = 3600.0


def attempts(*ends: tuple[float, float, Status]) -> tuple[Attempt, ...]:
    """(start, end, status), in seconds after START; later ones go on after the first epoch."""
    return tuple(
        Attempt(number=n, resumed_from_epoch=int(n > 1), status=status,
                started_at=START + timedelta(seconds=a), ended_at=START + timedelta(seconds=b))
        for n, (a, b, status) in enumerate(ends, start=1)
    )  # fmt: skip


def ended(seed: int, status: Status, *, met: Sequence[str] | None = ("a", "b")) -> RunRecord:
    """A cell of two ranks whose only attempt took an hour."""
    run = config(gpus=2, seed=seed)
    there = None if met is None else world(run, nodes=len(set(met)), hostnames=tuple(met))
    made = failed(run, status)
    missing = {key: why for key, why in made.missing.items() if met is None or key != "world"}
    return made.model_copy(
        update={"world": there, "missing": missing, "attempts": attempts((0, HOUR, status))}
    )


TWO_NODES = {"nodes": 2, "hostnames": ("a", "b")}


def usable(
    seed: int, *ends: tuple[float, float, Status], status: Status = "completed"
) -> RunRecord:
    """Three epochs of 2.0 + 0.5 s; the first is of attempt 1, the others of the last one."""
    each = [{"attempt": 1, "train_s": 2.0}, *[{"attempt": len(ends), "train_s": 2.0}] * 2]
    return record(
        config(gpus=2, seed=seed), world_changes=TWO_NODES, attempts=attempts(*ends),
        status=status, epoch_changes=each, images_per_s=160.0,
    )  # fmt: skip


def sweep(folder: Path, *items: RunRecord, unplanned: Sequence[RunRecord] = ()) -> Frames:
    return load_frames(write_sweep(folder / "s", items, unplanned=unplanned))


def rows(frames: Frames) -> pd.DataFrame:
    return usage.table(frames.attempts).data.set_index("outcome")


def test_every_attempt_is_in_one_row(tmp_path: Path) -> None:
    frames = sweep(
        tmp_path,
        usable(0, (0, 1 * HOUR, "completed")),
        usable(1, (0, 1 * HOUR, "timeout"), (2 * HOUR, 5 * HOUR, "completed")),
        usable(2, (0, 2 * HOUR, "diverged"), status="diverged"),
        ended(3, "failed"), ended(4, "timeout"), ended(5, "lost"),
        record(config(gpus=2, seed=6), world_changes=TWO_NODES, epoch_changes={"images": 300},
               attempts=attempts((0, HOUR, "completed"))),
        unplanned=[usable(7, (0, HOUR, "lost"), (HOUR, 2 * HOUR, "completed"))],
    )  # fmt: skip
    assert frames.problems[-1].kind == "rejected"
    found = rows(frames)
    assert list(found.index) == ["completed", "diverged", "repeated", "failed", "timeout", "lost",
                                 "rejected", "not in the plan"]  # fmt: skip
    # of the interrupted hour one epoch of 2.5 s counts
    repeated = (HOUR - 2.5) / HOUR
    hours = [1 + 4 - repeated, 2, repeated, 1, 1, 1, 1, 2]
    assert found["node_hours"].tolist() == pytest.approx([2 * h for h in hours])
    assert found["rank_hours"].tolist() == pytest.approx([2 * h for h in hours])
    assert found["share"].tolist() == pytest.approx([h / 13 for h in hours])
    assert found["cells"].tolist() == [2, 1, 1, 1, 1, 1, 1, 1]
    assert found["attempts"].tolist() == [3, 1, 1, 1, 1, 1, 1, 2]
    assert found["node_hours_note"].isna().all()


def test_attempts_of_a_failed_cell_are_told_by_how_each_ended(tmp_path: Path) -> None:
    both = attempts((0, HOUR, "lost"), (HOUR, 3 * HOUR, "failed"))
    found = rows(sweep(tmp_path, ended(0, "failed").model_copy(update={"attempts": both})))
    assert found["node_hours"].to_dict() == {"failed": 4, "lost": 2}


def test_ranks_that_never_met_count_as_others_with_as_many(tmp_path: Path) -> None:
    frames = sweep(tmp_path, usable(0, (0, HOUR, "completed")), ended(1, "failed", met=None))
    found = rows(frames)
    assert found.loc["failed", "node_hours"] == 2
    assert found.loc["failed", "node_hours_note"] == (
        "1 of 1 attempts ended before their ranks met: nodes as in the other attempts of as many "
        "ranks"
    )
    alone = rows(sweep(tmp_path / "alone", ended(1, "failed", met=None)))
    assert pd.isna(alone.loc["failed", "node_hours"]) and pd.isna(alone.loc["failed", "share"])
    assert "their nodes are not known" in alone.loc["failed", "node_hours_note"]
    assert alone.loc["failed", "rank_hours"] == 2


def test_a_sentence_from_ten_percent_on(tmp_path: Path) -> None:
    good = [usable(seed, (0, 3 * HOUR, "completed")) for seed in range(3)]
    few = sweep(tmp_path / "few", *good, ended(3, "failed"))
    assert build(few, draw=False).cautions == (), "exactly 10 %"
    frames = sweep(tmp_path, *good, ended(3, "failed"), ended(4, "lost"))
    (found,) = build(frames, draw=False).cautions
    assert found.text == (
        "18 % of the plan's node-hours gave no result, 4.00 of 22.0: failed 2.00, lost 2.00."
    )
    assert found.touches == "none"


def test_a_sweep_without_a_result_says_what_it_used(tmp_path: Path) -> None:
    report = build(sweep(tmp_path, ended(0, "failed")), draw=False)
    assert report.tables["usage"].data["node_hours"].tolist() == [2]


def note(folder: Path, job: str | None, at_s: float, *units: Sequence[str]) -> None:
    array = Array(job_id=job, units=tuple(map(tuple, units)), nodes=2, ranks_per_node=1,
                      minutes=120)  # fmt: skip
    at = START + timedelta(seconds=at_s)
    write_note(folder, RunNote(run=f"r{at_s}", site="x", job_name="n", submitted_at=at,
                               arrays=(array,)))  # fmt: skip


def test_an_attempt_is_of_the_last_submission_before_it(tmp_path: Path) -> None:
    """Two cells in one job, one that was submitted twice, one that never began, one by hand."""
    items = [
        usable(0, (600, 600 + HOUR, "completed")),
        usable(1, (600 + HOUR, 600 + 1.5 * HOUR, "completed")),
        usable(3, (300, 300 + HOUR, "lost"), (90_000, 90_000 + HOUR, "completed")),
        failed(config(gpus=2, seed=4), "cancelled").model_copy(
            update={"attempts": attempts((0, 50 * HOUR, "cancelled"))}
        ),
        usable(5, (-10, 0, "completed")),
    ]  # fmt: skip
    names = [item.cell_id for item in items]
    folder = write_sweep(tmp_path / "s", items)
    note(folder, "7", 0, names[:2], names[2:3], names[3:4])
    note(folder, "8", 80_000, names[2:3])
    note(folder, None, 85_000, names[2:3])  # sbatch refused
    (folder / ".slurm" / "broken.json").write_text("{")
    frames = load_frames(folder)
    since = frames.attempts["submitted_s"] - START.timestamp()
    assert since.tolist() == [0, 0, 0, 80_000, 0, pd.NA]
    cancelled = rows(frames).loc["cancelled"]
    assert pd.isna(cancelled["node_hours"]), "fifty hours in the queue used no node"
    assert "before they started a rank" in cancelled["node_hours_note"]


def test_what_another_plan_wanted_is_not_without_result(tmp_path: Path) -> None:
    """A sweep whose file was changed: its earlier cells completed as they should."""
    earlier = [usable(seed, (0, 3 * HOUR, "completed")) for seed in range(4)]
    folder = write_sweep(tmp_path / "s", earlier)
    manifest = json.loads((folder / "sweep.json").read_text())
    for planned in (earlier[:1], [*earlier[:1], ended(4, "failed")]):
        for item in planned:
            (folder / item.cell_id).mkdir(exist_ok=True)
            (folder / item.cell_id / "record.json").write_text(item.model_dump_json())
        manifest["cells"] = [item.cell_id for item in planned]
        (folder / "sweep.json").write_text(json.dumps(manifest))
        said = usage.without_result(build(load_frames(folder), draw=False).tables["usage"].data)
        assert said == (
            None if len(planned) == 1
            else "25 % of the plan's node-hours gave no result, 2.00 of 8.00: failed 2.00."
        )  # fmt: skip
