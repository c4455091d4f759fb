"""Every cell is somewhere: unused ones with their reason, used ones run by run."""

from __future__ import annotations

from analysis.records.load import load_frames
from analysis.topics.cells import completeness, every_run
from tests.analysis.builders import (
    REASON,
    config,
    failed,
    record,
    runs_frame,
    technique,
    write_sweep,
)
from tests.analysis.samples import HOSTILE, mixed_sweep
from train.config.schedule import Grow

GROWS = technique("naive", batch_growth=Grow(milestones=(0.3, 0.7), factor=2, largest=160))


def headings(shown) -> list[str]:
    return [column.heading for column in shown.columns]


def test_a_cell_that_is_in_no_table_has_its_reason_and_what_to_do(tmp_path) -> None:
    found = load_frames(mixed_sweep(tmp_path / "s"))
    table = completeness.table(found.problems)
    data = table.data.set_index("kind")
    assert sorted(data.index) == ["failed", "missing", "rejected", "unreadable"]
    assert HOSTILE in data.loc["failed", "what"], "as it is: escaping is the page's"
    assert data.loc["failed", "rank"] == 1 and data["rank"].isna().sum() == 3
    assert data.loc["missing", "cell"] == "digits-cnn-lamb-g4-s0-000000"
    assert (data["what"].str.len() > 0).all() and (data["what_to_do"].str.len() > 0).all()
    assert len(found.runs) + len(data) == len(found.planned)
    assert len(table.shown().rows) == 4


def test_one_problem_and_none(tmp_path) -> None:
    one = load_frames(write_sweep(tmp_path / "s", [failed(config())]))
    shown = completeness.table(one.problems).shown()
    assert len(shown.rows) == 1
    assert headings(shown) == ["cell", "kind", "status", "what", "what to do"]
    assert completeness.table(()).shown().rows == ()


def test_every_run_is_told_with_the_reason_of_a_null() -> None:
    items = [
        record(config(), accuracies=[0.2, 0.3, 0.4]),
        record(config(seed=1), accuracies=[None] * 3, images_per_s=None),
        record(config(seed=2), status="diverged", accuracies=[0.2, 0.1]),
    ]
    table = every_run.table(runs_frame(items))
    assert table.data["cell_id"].tolist() == [item.cell_id for item in items]
    assert table.data["status"].tolist() == ["completed", "completed", "diverged"]
    shown = table.shown()
    place = headings(shown).index("validation accuracy")
    assert [row[place] for row in shown.rows] == ["0.400", "n/a\u00a0¹", "0.100"]
    assert shown.notes == (f"¹ {REASON}",)


def test_every_run_shows_what_tells_runs_apart() -> None:
    alike = every_run.table(runs_frame([record(config(seed=s)) for s in (0, 1)])).shown()
    assert "ranks" not in headings(alike) and "hosts" not in headings(alike)
    worlds = [{"hostnames": (name,)} for name in ("node1", "node2")]
    items = [record(config(seed=s), world_changes=w) for s, w in enumerate(worlds)]
    assert "hosts" in headings(every_run.table(runs_frame(items)).shown())


def test_a_budget_that_differs_is_shown_as_the_epochs_add_up_to_it() -> None:
    """The config asks for the same epochs, batch and rate in both."""
    rates = [{"lr_first": 0.1, "lr_mean": 0.2, "lr_last": 0.3}, {"lr_mean": 0.4}, {}]
    grown = [own | {"accumulation": times} for own, times in zip(rates, (1, 2, 4), strict=True)]
    runs = runs_frame([record(), record(config(technique=GROWS, seed=1), epoch_changes=grown)])
    shown = every_run.table(runs).shown()
    budget = ("global batch", "steps", "images", "lr peak")
    places = [headings(shown).index(name) for name in budget if name != "images"]
    assert [shown.rows[1][place] for place in places] == ["16 → 64", "35", "0.400"]
    assert runs["steps"].tolist() == [60, 35] and "images" not in headings(shown)
    alike = every_run.table(runs_frame([record(config(seed=s)) for s in (0, 1)])).shown()
    assert not {*budget, "skipped"} & {*headings(alike)}
