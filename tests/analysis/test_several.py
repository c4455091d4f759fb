"""Reports, notebooks and exports of one sweep or several."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner, Result

import analysis
from analysis.__main__ import app
from analysis.records.columns import FRAMES, LABELS
from analysis.records.load import SweepError, load_frames
from analysis.several import SCALARS, frames_of
from analysis.table import types
from tests.analysis.builders import START, config, failed, record, technique, write_sweep
from tests.analysis.samples import good_records, good_sweep, mixed_sweep, rich_sweep

ROOT = Path(__file__).resolve().parents[2]


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def two(folder: Path) -> list[Path]:
    """Sweeps that share a cell, which a lost; another one of b failed."""
    records = good_records()
    a = [*records[:3], failed(records[3].config)]
    b = [*records[3:], failed(config(gpus=2, seed=8))]
    return [write_sweep(folder / name, own) for name, own in (("a", a), ("b", b))]


def test_several_sweeps_are_one_report_and_a_shared_cell_counts_once(tmp_path: Path) -> None:
    done = call("report", *two(tmp_path))
    assert done.exit_code == 1, done.output  # a cell failed
    out = tmp_path / "a+b" / "report"
    assert str(out / "report.html") in done.output
    runs = pd.read_csv(out / "runs.csv")
    assert runs["sweep"].value_counts().to_dict() == {"b": 5, "a": 3}
    assert (
        "Several of these sweeps plan 1 cell, which counts once ("
        in (out / "report.html").read_text()
    )
    told = json.loads((out / "answers.json").read_text())["answers"]
    (complete,) = [one for one in told if one["key"] == "complete"]
    assert "make logs SWEEP=b CELL=digits-" in complete["text"]
    assert "Then make sweep SWEEP=b runs the rest" in complete["text"], "all of a is there"
    # one technique is in one sweep, its reference in the other: compared as if in one
    assert any(one["key"] == "scaling" for one in told)


def test_each_frame_has_the_rows_of_all_sweeps(tmp_path: Path) -> None:
    folders = [mixed_sweep(tmp_path / "mixed"), rich_sweep(tmp_path / "rich")]
    (folders[1] / ".slurm").mkdir()
    (folders[1] / ".slurm" / "run.json").write_text('{"schema_version": 1, "site": "alps"}')
    found, twice = frames_of(folders)
    first, second = map(load_frames, folders)
    assert set(twice) == {*first.planned["cell_id"]} & {*second.planned["cell_id"]} != set()
    for name, columns in FRAMES.items():
        table, parts = getattr(found, name), [getattr(first, name), getattr(second, name)]
        assert table.dtypes.astype(str).to_dict() == {"sweep": "string", **types(columns)}
        parts[1] = parts[1][~parts[1]["cell_id"].isin(twice)]
        cells = pd.concat(["mixed/" + parts[0]["cell_id"], "rich/" + parts[1]["cell_id"]])
        assert table["cell_id"].tolist() == cells.tolist()
        same = [one for one in types(columns) if one not in (*LABELS, "cell_id")]
        pd.testing.assert_frame_equal(table[same], pd.concat(parts, ignore_index=True)[same])
    named = found.planned["technique_label"].notna()
    assert named.tolist() == found.planned["known"].tolist()
    assert (found.name, found.title) == ("mixed + rich", first.title)
    assert found.techniques == ("naive", "lamb", "lars", "grow", "adascale")
    assert (found.folder, found.sites) == (tmp_path.resolve(), ("alps",))
    assert [one.cell_id for one in found.problems] == [
        f"mixed/{one.cell_id}" for one in first.problems
    ]
    assert found.unplanned == tuple(f"mixed/{name}" for name in first.unplanned)


def test_names_are_made_anew_over_all_sweeps(tmp_path: Path) -> None:
    """Each sweep has one rate under the name; together they have two. Both lost one cell."""
    gone = failed(config(seed=9))
    each = {"a": config(technique=technique(base_lr=0.1)),
            "b": config(technique=technique(base_lr=0.2), epochs=4)}  # fmt: skip
    folders = [write_sweep(tmp_path / name, [record(one), gone]) for name, one in each.items()]
    assert load_frames(folders[0]).runs["technique_label"].tolist() == ["naive"]
    found, twice = frames_of(folders)
    assert ([f"a/{cell}" for cell in twice], len(found.planned)) == (
        [one.cell_id for one in found.problems], 3
    )  # fmt: skip
    for table in (found.planned, found.runs, found.epochs):
        assert table["technique_label"].unique().tolist() == [
            "naive (base_lr=0.1)", "naive (base_lr=0.2)"
        ]  # fmt: skip
        assert table["context"].unique().tolist() == [("3 epochs",), ("4 epochs",)]


def test_sweeps_of_one_name_and_a_missing_one_are_wrong_requests(tmp_path: Path) -> None:
    first, second = good_sweep(tmp_path / "x" / "s"), good_sweep(tmp_path / "y" / "s")
    done = call("report", first, second)
    assert done.exit_code == 2 and "check AFTER --baseline BEFORE" in done.output
    assert call("summary", first, tmp_path / "none").exit_code == 2
    assert call("export", tmp_path / "none", "--csv", tmp_path / "out").exit_code == 2


def test_export_writes_documented_columns(tmp_path: Path) -> None:
    out = tmp_path / "new" / "csv"
    assert call("export", good_sweep(tmp_path / "s"), "--csv", out).exit_code == 0
    about = pd.read_csv(out / "columns.csv", keep_default_na=False)
    for name, columns in FRAMES.items():
        found = pd.read_csv(out / f"{name}.csv")
        assert list(found) == [*types(columns)]
        assert list(about.loc[about["table"] == name, "column"]) == list(found)
    assert (about["description"] != "").all()
    assert set(about.loc[about["column"] == "hosts", "type"]) == {"JSON array"}
    assert len(pd.read_csv(out / "ranks.csv")) == 4 * 1 + 4 * 2
    several = tmp_path / "both"
    assert call("export", *two(tmp_path), "--csv", several).exit_code == 1, "a cell failed"
    assert set(pd.read_csv(several / "runs.csv")["sweep"]) == {"a", "b"}
    about = pd.read_csv(several / "columns.csv")
    for name in FRAMES:
        found = [*pd.read_csv(several / f"{name}.csv")]
        assert list(about.loc[about["table"] == name, "column"]) == found
    nothing = write_sweep(tmp_path / "n", [failed(config())])
    assert call("export", nothing, "--csv", out).exit_code == 3
    (tmp_path / "file").touch()
    assert call("export", nothing, "--csv", tmp_path / "file").exit_code == 2


@pytest.mark.tf
def test_events_are_what_tensorboards_own_reader_reads(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sweep, out = mixed_sweep(tmp_path / "s"), tmp_path / "new" / "events"
    for _ in range(2):  # a second export replaces the first, and adds no points to it
        done = call("export", sweep, "--tensorboard", out)
        assert done.exit_code == 1 and "9 runs" in done.output, done.output  # some cells failed
    frames = load_frames(sweep)
    assert {path.name for path in out.iterdir()} == set(frames.runs["cell_id"])
    for cell, epochs in frames.epochs.groupby("cell_id"):
        run = EventAccumulator(str(out / str(cell))).Reload()
        assert set(run.Tags()["scalars"]) == set(SCALARS)
        for tag, column in SCALARS.items():
            there = epochs[epochs[column].notna()]
            points = run.Scalars(tag)
            assert [point.step for point in points] == there["epoch"].tolist()
            assert [point.value for point in points] == pytest.approx(there[column].tolist())
            so_far = (point.wall_time - START.timestamp() for point in points)
            assert [*so_far] == pytest.approx(there["seconds_so_far"].tolist(), abs=1e-5)
    diverged = frames.epochs[frames.epochs["status"] == "diverged"]
    assert diverged["validation_accuracy"].isna().any(), "a null is no point of a curve"


def test_events_of_several_sweeps_are_apart_and_beside_the_tables(tmp_path: Path) -> None:
    out = tmp_path / "both"
    assert call("export", *two(tmp_path), "--csv", out, "--tensorboard", out).exit_code == 1
    assert len([*out.glob("a/*/events.*")]) == 3 and len([*out.glob("b/*/events.*")]) == 5
    assert (out / "epochs.csv").is_file()


def test_an_export_that_cannot_be_is_a_wrong_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = good_sweep(tmp_path / "s")
    done = call("export", sweep)
    assert done.exit_code == 2 and "give --csv DIR, --tensorboard DIR or both" in done.output
    (tmp_path / "file").touch()
    done = call("export", sweep, "--tensorboard", tmp_path / "file")
    assert done.exit_code == 2 and "cannot write" in done.output
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)  # a login node
    done = call("export", sweep, "--tensorboard", tmp_path / "out")
    assert done.exit_code == 2 and "run make setup" in done.output
    assert not (tmp_path / "out").exists()


def test_a_notebook_gets_tables_figures_and_the_first_screen(tmp_path: Path) -> None:
    found = analysis.report(good_sweep(tmp_path / "s"))
    assert {"runs", "epochs", "ranks", "scaling", "convergence", "claims"} <= set(found.tables)
    assert all(isinstance(table, pd.DataFrame) and len(table) for table in found.tables.values())
    assert "efficiency" in found.figures
    for figure in found.figures.values():
        assert isinstance(figure, Figure)
    found.figures["efficiency"].savefig(tmp_path / "efficiency.pdf")
    html = found._repr_html_()
    assert "How far does it scale?" in html and "<svg" in html and "<html" not in html
    assert "How far does it scale?" in repr(found)
    assert not (tmp_path / "s" / "report").exists()


def test_a_notebook_escapes_what_records_say(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [record()], title="<script>alert(1)</script>")
    assert "<script" not in analysis.report(folder)._repr_html_()


def test_a_notebook_without_a_folder_or_sweep_says_so(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="at least one folder"):
        analysis.report()
    with pytest.raises(SweepError, match="cannot be read: No such file"):
        analysis.report(tmp_path / "none")


def test_the_example_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Jupyter would run it, in its folder, cell by cell; it holds no outputs."""
    monkeypatch.chdir(ROOT / "docs")
    monkeypatch.setattr(sys, "path", [*sys.path])
    cells = json.loads(Path("notebook.ipynb").read_text())["cells"]
    names: dict[str, Any] = {}
    for cell in (one for one in cells if one["cell_type"] == "code"):
        assert cell["outputs"] == [] and cell["execution_count"] is None
        exec("".join(cell["source"]), names)
    assert "How far does it scale?" in names["report"]._repr_html_()
    assert isinstance(names["efficiency"], Figure)


def test_each_documented_example_of_the_api_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders are texts there. Seen: `load_runs("results/cifar10")` raised TypeError."""
    good_sweep(tmp_path / "results" / "cifar10")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "read-the-report.md").read_text()
    examples = re.findall(r"(?s)```python\n(.*?)```", page)
    assert len(examples) == 2
    names: dict[str, Any] = {}
    for example in examples:
        exec(example, names)
    assert len(names["frames"].runs) == 8 and (tmp_path / "efficiency.pdf").is_file()
    assert len(names["compare"](names["frames"], names["frames"]).data)


def test_an_export_replaces_nobody_elses_file(tmp_path: Path) -> None:
    sweep, out = good_sweep(tmp_path / "s"), tmp_path / "mine"
    out.mkdir()
    (out / "epochs.csv").write_text("my own\n")
    done = call("export", sweep, "--csv", out)
    assert done.exit_code == 2 and "epochs.csv" in done.output, done.output
    assert [file.name for file in out.iterdir()] == ["epochs.csv"]
    assert (out / "epochs.csv").read_text() == "my own\n"
    report = sweep / "report"
    assert call("report", sweep).exit_code == 0
    assert call("export", sweep, "--csv", report).exit_code == 2, "a report's tables stay"
    # its own files it replaces
    new = tmp_path / "new"
    assert call("export", sweep, "--csv", new).exit_code == 0
    assert call("export", sweep, "--csv", new).exit_code == 0
