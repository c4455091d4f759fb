"""Every cell is somewhere: unused ones with their reason, used ones run by run."""

from __future__ import annotations

from analysis.topics.cells import every_run
from tests.analysis.builders import (
    config,
    record,
    runs_frame,
    technique,
)
from train.config.schedule import Grow

GROWS = technique("naive", batch_growth=Grow(milestones=(0.3, 0.7), factor=2, largest=160))


def headings(shown) -> list[str]:
    return [column.heading for column in shown.columns]


def test_every_run_shows_what_tells_runs_apart() -> None:
    alike = every_run.table(runs_frame([record(config(seed=s)) for s in (0, 1)])).shown()
    assert "ranks" not in headings(alike) and "hosts" not in headings(alike)
    worlds = [{"hostnames": (name,)} for name in ("node1", "node2")]
    items = [record(config(seed=s), world_changes=w) for s, w in enumerate(worlds)]
    assert "hosts" in headings(every_run.table(runs_frame(items)).shown())
    skips = [record(config(seed=s), epoch_changes={"skipped_steps": 3}) for s in (0, 1)]
    assert "skipped" in headings(every_run.table(runs_frame(skips)).shown()), "though all did"


def test_a_budget_that_differs_is_shown_as_the_epochs_add_up_to_it() -> None:
    """The config asks for the same epochs and batch in both."""
    grown = [{"accumulation": times} for times in (1, 2, 4)]
    runs = runs_frame([record(), record(config(technique=GROWS, seed=1), epoch_changes=grown)])
    shown = every_run.table(runs).shown()
    row = dict(zip(headings(shown), shown.rows[1], strict=True))
    assert (row["global batch"], row["steps"]) == ("16 → 64", "35") and "images" not in row
    alike = every_run.table(runs_frame([record(config(seed=s)) for s in (0, 1)])).shown()
    assert not {"global batch", "steps", "images", "skipped"} & {*headings(alike)}
