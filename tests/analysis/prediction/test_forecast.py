"""The forecast against exact models and simulated networks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from analysis.prediction import Scaling
from analysis.prediction.collectives import Link, ring
from analysis.prediction.forecast import MOST_HELD_OUT, forecast
from analysis.prediction.step_model import (
    Measured,
    StepModel,
    fit_step,
    largest_of_normals,
    measured_counts,
)
from analysis.records.columns import SHARED_CORES

LINK, GRADIENT = Link(50e-6, 8 / 400e6), 1.2e6
BASE, HIDDEN, SKEW = 0.1, 0.02, 0.004


def all_reduce(ranks: int) -> float:
    return ring(ranks, GRADIENT).seconds(LINK)


def step(ranks: int, scaling: Scaling = "weak", first: int = 1) -> tuple[float, float, float]:
    """Step, communication and shown, by the formula written out anew."""
    share = 1.0 if scaling == "weak" else first / ranks
    sent = all_reduce(ranks) if ranks > 1 else 0.0
    shown = max(0.0, sent - HIDDEN * share) if ranks > 1 else 0.0
    return BASE * share + shown + SKEW * largest_of_normals(ranks), sent, shown


def measured(
    ranks: int, *, noise: float = 0.0, scaling: Scaling = "weak", parts: bool = True,
    random: np.random.Generator | None = None, times: float = 1.0, **more: object,
) -> Measured:  # fmt: skip
    total, sent, shown = step(ranks, scaling)
    random = random or np.random.default_rng(ranks)
    steps = tuple(times * total * np.exp(noise * random.normal(size=3)))
    known = (sent, shown, SKEW * largest_of_normals(ranks)) if parts and ranks > 1 else None
    return Measured(ranks, steps, known, **more)  # type: ignore[arg-type]


def test_largest_of_normals_is_that_of_a_table() -> None:
    """Expected order statistics (Harter 1961), and a simulation for many ranks."""
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi), 4: 1.02938, 8: 1.42360}
    for ranks, value in known.items():
        assert largest_of_normals(ranks) == pytest.approx(value, abs=1e-5)
    drawn = np.random.default_rng(1).normal(size=(20_000, 64)).max(axis=1)
    assert largest_of_normals(64) == pytest.approx(drawn.mean(), abs=4 * drawn.std() / 141)


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_an_exact_model_is_given_back_and_continued(scaling: Scaling) -> None:
    found = forecast([measured(k, scaling=scaling) for k in (1, 2, 4)], scaling, all_reduce)
    assert found.refused is None
    assert [h.ranks for h in found.held_out] == [4], "one rank alone predicts nothing"
    assert found.held_out[0].error == pytest.approx(0, abs=1e-9)
    assert [p.ranks for p in found.points] == [8, 16]
    for point in found.points:
        truth = step(point.ranks, scaling)[0]
        ideal = step(1)[0] / (1 if scaling == "weak" else point.ranks)
        assert point.step_s.value == pytest.approx(truth)
        assert point.efficiency.value == pytest.approx(ideal / truth)
        assert point.step_s.low < truth < point.step_s.high
    widths = [p.step_s.high / p.step_s.low for p in found.points]
    assert widths[1] == pytest.approx(widths[0] ** 2), "in proportion to the doublings, as logs"


def test_a_large_error_is_a_refusal_with_its_hold_out() -> None:
    runs = [measured(1), measured(2), measured(4, times=1.6)]
    found = forecast(runs, "weak", all_reduce)
    assert found.points == ()
    assert found.held_out[-1].error == pytest.approx(1 / 1.6 - 1)
    assert abs(found.held_out[-1].error) > MOST_HELD_OUT
    assert found.refused is not None and "38 % too short" in found.refused


def test_a_model_that_misses_what_it_was_fitted_to_is_refused() -> None:
    runs = [measured(1), measured(2, times=1.3), measured(4), measured(8)]
    found = forecast(runs, "weak", all_reduce)
    assert found.refused is not None and "off what it was fitted to" in found.refused


def test_other_refusals() -> None:
    shared = forecast([measured(1), measured(2), measured(4, shared_cores=True)], "weak")
    assert shared.refused == SHARED_CORES
    two = forecast([measured(1), measured(2)], "weak", all_reduce)
    assert two.refused is not None and two.refused.startswith("no smaller counts")
    assert forecast([measured(4, parts=False)], "weak").refused == two.refused
    odd = [Measured(k, (0.1,), (0.2, 0.1, 0.05)) for k in (2, 4)]
    assert "no time" in str(forecast(odd, "weak", all_reduce).refused)


@pytest.mark.parametrize("scaling", ["weak", "strong"])
def test_efficiency_is_against_the_smallest_measured_count_even_within_a_node(
    scaling: Scaling,
) -> None:
    """Two ranks of one node are no part of the fit, and still the baseline of what was measured."""
    across = [measured(k, nodes=k // 2, scaling=scaling) for k in (4, 8, 16)]
    within = Measured(2, (0.08 if scaling == "weak" else 0.04,), nodes=1)
    found = forecast([within, *across], scaling, all_reduce)
    assert found.fitted_on == (4, 8, 16)
    for point in found.points:
        ideal = within.mean * (1 if scaling == "weak" else 2 / point.ranks)
        assert point.efficiency.value == pytest.approx(ideal / point.step_s.value)


@pytest.mark.parametrize("parts", [True, False])
@pytest.mark.parametrize(
    "sent", [lambda k: 0.06 * (k - 1) / k, lambda k: 0.01 * math.log2(k), lambda k: 0.001 * (k - 1)]
)
def test_bytes_and_messages_of_a_ring_or_a_tree_are_continued(
    sent: Callable[[int], float], parts: bool
) -> None:
    runs = [
        Measured(k, (BASE + sent(k),), (sent(k), sent(k), 0.0) if parts and k > 1 else None)
        for k in (1, 2, 4, 8, 16)
    ]
    found = forecast(runs, "weak")
    assert [h.fitted_on for h in found.held_out] == [(1, 2), (1, 2, 4), (1, 2, 4, 8)]
    assert len(found.points) == 2
    for point in found.points:
        assert point.step_s.value == pytest.approx(BASE + sent(point.ranks), rel=1e-6)
    fewer = fit_step(runs[:3], "weak")
    assert isinstance(fewer, StepModel) and len(fewer.network) < 3, "no more than counts can tell"


def test_parts_come_from_a_frame_of_runs() -> None:
    columns = ("step_s", "communication_s", "exposed_s", "waiting_s")
    rows = [(1, 1.0, 0.0, 0.0, None), (2, 1.3, 0.5, 0.3, 0.1), (2, 1.5, 0.5, 0.3, 0.1),
            (4, 1.4, 0.5, None, 0.1)]  # fmt: skip
    runs = pd.DataFrame(
        [{"gpus": k, "nodes": k, "oversubscribed": k == 4,
          **dict(zip(columns, parts, strict=True))} for k, *parts in rows]
    ).astype(dict.fromkeys(columns, "Float64"))  # fmt: skip
    one, two, four = measured_counts(runs)
    assert one.parts is None and one.step_s == (1.0,)
    assert two.step_s == (1.3, 1.5)
    assert two.parts == pytest.approx((0.4, 0.2, 0.1))
    assert four.shared_cores and four.parts is None and four.nodes == 4
    assert isinstance(fit_step([one, two], "weak", all_reduce), StepModel)
