"""The curve of the noise scale: which epochs have a point, a bound, or neither."""

from __future__ import annotations

import math
import warnings

import pytest

from analysis.plots.figure import Figure, looks
from analysis.topics.training.noise import figure
from tests.analysis.planned import sweep
from tests.analysis.topics.training.test_noise_table import censored, measured, run
from train.record.run import NoiseScale, RunRecord


def around(value: float) -> NoiseScale:
    return measured(value, value / 2, value * 2)


def drawn(*items: RunRecord) -> Figure | None:
    return figure(sweep(items))


def test_a_point_is_the_geometric_mean_at_the_steps_so_far() -> None:
    one = run(0, around(100.0), around(400.0))
    other = run(1, around(400.0), around(900.0))
    found = drawn(one, other)
    assert found is not None
    assert found.data["value"].tolist() == pytest.approx([200, 600])
    steps = one.epochs[0].steps
    assert found.data["step"].tolist() == [steps, 2 * steps]
    assert ">naive<" in str(found.svg)


def test_where_a_run_is_censored_there_is_a_bound_and_no_mean() -> None:
    items = [run(0, around(100.0), censored(50.0)), run(1, around(100.0), around(90.0))]
    found = drawn(*items)
    assert found is not None
    assert math.isnan(found.data["value"][1]) and found.data["low"][1] <= 50
    assert "Hollow" in found.caption


def test_a_bound_of_zero_is_left_out() -> None:
    items = [run(seed, censored(0.0), around(90.0), around(100.0)) for seed in (0, 1)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a logarithmic axis has no place for it
        found = drawn(*items)
    assert found is not None
    assert math.isnan(found.data["low"][0])


def test_one_epoch_makes_no_curve_and_hidden_techniques_none() -> None:
    assert drawn(run(0, around(100.0))) is None
    of = sweep([run(0, around(1.0), around(2.0))])
    of.seen = looks(["lamb"])
    assert figure(of) is None
