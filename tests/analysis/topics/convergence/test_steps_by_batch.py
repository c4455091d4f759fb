"""Steps against the batch: dots of runs, hollow where censored, and the law that the table has."""

from __future__ import annotations

import pytest

from analysis.plots.figure import Figure, looks
from analysis.topics.convergence import critical_batch
from analysis.topics.convergence.steps_by_batch import figure
from tests.analysis.planned import sweep
from tests.analysis.topics.convergence.to_target import CRITICAL, SMALLEST, run
from train.record.run import RunRecord

ORDER = ("naive", "lamb")


def drawn(*items: RunRecord, seen: tuple[str, ...] = ORDER) -> Figure:
    of = sweep(items)
    return figure(critical_batch.points(of), critical_batch.fits(of).data, looks(seen))


def exact(*batches: int, **changes) -> list[RunRecord]:
    return [run(batch, **changes) for batch in batches]


def test_a_dot_per_run_and_the_line_of_the_law() -> None:
    found = drawn(*exact(16, 32, 64, 128))
    assert "4 runs, one dot each" in found.caption and "Hollow" not in found.caption
    dots, line = (found.data[found.data["kind"] == kind] for kind in ("run", "law"))
    assert dots["steps"].tolist() == [240, 144, 96, 72]
    assert line["global_batch"].iloc[[0, -1]].tolist() == pytest.approx([16, 128])
    expected = [SMALLEST * (1 + CRITICAL / batch) for batch in line["global_batch"]]
    assert line["steps"].tolist() == pytest.approx(expected, rel=1e-4)
    svg = str(found.svg)
    assert all(f">{text}<" in svg for text in ("16", "128", "global batch (log)"))


def test_censored_runs_are_hollow_and_said() -> None:
    found = drawn(*exact(16, 32, 64, 128), run(16, 1, met=False, epochs=5))
    assert "Hollow: the target was not reached" in found.caption
    hollow = found.data[~found.data["met"].fillna(True)]
    assert hollow["steps"].tolist() == [80], "the steps that it had"


def test_several_techniques_share_a_panel_and_workloads_do_not() -> None:
    found = drawn(*exact(16, 32, 64), *exact(16, 32, 64, name="lamb", epochs=50))
    assert found.data["panel"].nunique() == 1
    two = drawn(*exact(16, 32, 64), *exact(16, 32, 64, model="resnet_mini"))
    assert set(two.data["panel"]) == {"cnn", "resnet_mini"} and ">resnet_mini<" in str(two.svg)


def test_without_a_fit_there_are_dots_alone() -> None:
    found = drawn(*exact(16, 32))
    assert set(found.data["kind"]) == {"run"} and "Lines" not in found.caption
    assert found.svg is not None


def test_a_search_is_drawn_though_no_other_figure_has_its_label() -> None:
    rates = [{"settings": {"base_lr": rate}} for rate in (0.1, 0.2)]
    items = [run(16, **rates[0]), run(32, **rates[0]), run(64, epochs=40, **rates[0])]
    found = drawn(*items, run(64, **rates[1]), seen=("naive (base_lr=0.1)", "naive (base_lr=0.2)"))
    assert ">naive<" in str(found.svg) and len(found.data[found.data["kind"] == "run"]) == 3
