"""The best rate at each batch: which rows of a search make a line."""

from __future__ import annotations

import pytest

from tests.analysis.topics.convergence.test_learning_rates import made, search
from tests.measured.best_rates import figure, numbers


def test_a_line_through_the_best_rates_of_a_technique_s_batches() -> None:
    items = search([0.3, 0.5, 0.4], batch_per_rank=8) + search([0.3, 0.4, 0.5], batch_per_rank=16)
    found = figure(made(*items).data)
    assert found is not None
    assert found.data["line"].unique().tolist() == ["naive"]
    assert found.data["global_batch"].tolist() == [8, 16]
    assert found.data["base_lr"].tolist() == pytest.approx([0.1, 1.0])
    assert found.data["tied_min"].tolist() == pytest.approx([0.1, 1.0])
    near = search([0.3, 0.48, 0.5], batch_per_rank=32)
    ends = numbers(made(*items, *near).data).iloc[2][["tied_min", "tied_max"]]
    assert ends.tolist() == pytest.approx([0.1, 1.0])
    svg = str(found.svg)
    assert ">linear rule<" in svg and ">square root rule<" in svg
    assert "Hollow: it is the lowest or the highest" in found.caption


def test_one_batch_makes_no_line() -> None:
    assert figure(made(*search([0.3, 0.5, 0.4])).data) is None
    assert figure(made().data) is None
