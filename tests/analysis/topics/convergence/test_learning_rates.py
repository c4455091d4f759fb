"""A search over rates: what is one search, which rate is best, and whether it lies at an end."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from analysis.table import Table
from analysis.topics.convergence import learning_rates
from analysis.topics.convergence.learning_rates import HIGHEST, LOWEST
from tests.analysis.builders import config, record, technique
from tests.analysis.planned import sweep
from train.config.run import RunConfig, Target
from train.record.run import RunRecord

RATES = (0.01, 0.1, 1.0)


def asked(rate: float, seed: int = 0, name: str = "naive", *, settings=None, **changes):
    of = technique(name, **{"base_lr": rate, **(settings or {})})
    return config(name, **{"seed": seed, "technique": of, **changes})


def search(accuracies, rates=RATES, *, diverged: float | None = None, **changes):
    """Two seeds of each rate, 0.02 apart; ``diverged``: the rate of which one does."""
    return [
        record(asked(rate, seed, **changes), accuracies=[0.1, 0.2, accuracy + seed / 50],
               status="diverged" if rate == diverged and seed else "completed")
        for rate, accuracy in zip(rates, accuracies, strict=True) for seed in (0, 1)
    ]  # fmt: skip


def made(*items: RunRecord, lost: tuple[RunConfig, ...] = ()) -> Table:
    return learning_rates.tried(sweep(items, lost=lost))


def test_a_row_per_rate_with_its_mean_and_the_best_one() -> None:
    # t(0.975, 2) = 4.30265, the error sqrt(2) * 0.01: a difference of 0.0608 is shown
    items = search([0.43, 0.5, 0.45])
    table = made(*items)
    data = table.data
    assert data["base_lr"].tolist() == [0.01, 0.1, 1.0]
    assert data["accuracy"].tolist() == pytest.approx([0.44, 0.51, 0.46])
    # t(0.975, 1) = 12.7062, half the difference 0.01
    assert data["accuracy_low"][1] == pytest.approx(0.51 - 0.127062, rel=1e-4)
    assert data["technique_label"].tolist() == ["naive"] * 3, "the rate has a column of its own"
    assert data["best_note"].isna().all() and data["tied"].tolist() == [False, True, True]
    shown = table.shown()
    headings = [column.heading for column in shown.columns]
    assert "diverged" not in headings, "none did"
    assert [row[headings.index("best")] for row in shown.rows] == ["", "best", "tied"]
    one = made(*(item for item in items if item.config.seed == 0))
    assert one.data["tied"].isna().all(), "one run has no interval"


@pytest.mark.parametrize(("accuracies", "changes", "best", "notes"), [
    ([0.5, 0.4, 0.3], {}, [0.01], [LOWEST]),
    ([0.3, 0.4, 0.5], {}, [1.0], [HIGHEST]),
    # a rate that lost runs is not best, but was searched
    ([0.3, 0.4, 0.9], {"diverged": 1.0}, [0.1], []),
    # a planned rate without a run bounds nothing
    ([0.3, 0.4], {"rates": RATES[:2]}, [0.1], [HIGHEST]),
])  # fmt: skip
def test_a_best_rate_at_an_end_of_what_was_searched_says_so(
    accuracies: list[float], changes, best: list[float], notes: list[str]
) -> None:
    items = search(accuracies, **changes)
    found = made(*items, lost=(asked(1.0), asked(1.0, 1)) if len(accuracies) < 3 else ()).data
    assert found["base_lr"].tolist() == [*RATES]
    assert found.loc[found["best"], "base_lr"].tolist() == best
    assert found["best_note"].dropna().tolist() == notes
    assert found["n_diverged"].tolist() == [0, 0, int("diverged" in changes)]


def test_where_all_runs_diverged_the_table_says_so_and_there_is_no_figure() -> None:
    items = [record(asked(rate, seed), status="diverged") for rate in RATES for seed in (0, 1)]
    table = made(*items)
    assert table.data["n_diverged"].tolist() == [2, 2, 2] and not table.data["best"].any()
    assert learning_rates.figure(sweep(items)) is None


def test_searches_are_apart_by_all_but_the_rate() -> None:
    """Not one: two rates; runs that stop at a target, which say nothing of accuracy; no run."""
    table = made(*search([0.3, 0.5, 0.4]), *search([0.3, 0.4, 0.5], batch_per_rank=32),
                 *search([0.5, 0.4, 0.3], settings={"label_smoothing": 0.1}),
                 *search([0.3, 0.5], RATES[:2], name="lamb"),
                 *search([0.3, 0.5, 0.4], target=Target(validation_accuracy=0.9)),
                 lost=tuple(asked(rate, name="lars") for rate in RATES))  # fmt: skip
    assert table.data["line"].nunique() == 3
    assert table.data["technique_label"].nunique() == 2
    assert int(table.data["best"].sum()) == 3


def test_the_figure_has_a_line_per_technique_and_batch() -> None:
    items = [*search([0.3, 0.5, 0.4]), *search([0.3, 0.4, 0.5], batch_per_rank=32)]
    found = learning_rates.figure(sweep(items))
    titles = ElementTree.fromstring(str(found.svg)).iter("{http://www.w3.org/2000/svg}title")
    assert [title.text for title in titles][1] == (
        "naive, batch 16, rate 0.1: 0.510 (0.383 to 0.637), 2 runs"
    )
