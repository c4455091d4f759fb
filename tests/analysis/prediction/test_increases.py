"""What more ranks are worth, against hand-worked rates."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.prediction.increases import Recommendation, increases, recommend


def test_an_increase_by_hand() -> None:
    """100 to 180 images/s: an added rank gives 80 %, and the same work costs 2 / 1.8 - 1 more. From
    2 to 3 ranks 40 of the 90 that each had."""
    first, second = increases({1: [100.0, 100.0], 2: [180.0, 180.0], 3: [220.0], 5: []})
    assert (first.before, first.ranks, second.before, second.ranks) == (1, 2, 2, 3)
    assert first.speed_up.value == pytest.approx(1.8)
    assert first.marginal.value == pytest.approx(0.8)
    assert first.gpu_hours.value == pytest.approx(0.1111, abs=1e-4)
    assert second.marginal.value == pytest.approx(40 / 90)
    assert second.gpu_hours.value == pytest.approx((3 / 220) / (2 / 180) - 1)
    assert second.marginal.low is None


def test_the_intervals_of_an_increase_belong_together() -> None:
    random = np.random.default_rng(5)
    rates = {2: list(random.normal(100, 2, 4)), 6: list(random.normal(240, 3, 4))}
    (found,) = increases(rates)
    assert found.speed_up.low is not None and found.marginal.low is not None
    assert found.marginal.low == pytest.approx((found.speed_up.low - 1) / 2)
    assert found.gpu_hours.high == pytest.approx(3 / found.speed_up.low - 1)


def test_the_recommended_count_is_the_last_that_pays() -> None:
    rates = {1: 100.0, 2: 190.0, 4: 350.0, 8: 560.0, 16: 1000.0}
    sure = {k: [v * 0.999, v, v * 1.001] for k, v in rates.items()}
    found = recommend(increases(sure))
    # 4 to 8 gives 60 %; that 8 to 16 gives 79 % helps no more
    assert found == Recommendation(4, 4, 4, False)
    wide = {k: [v * 0.9, v, v * 1.1] for k, v in rates.items()}
    unsure = recommend(increases(wide))
    assert unsure.ranks == 4 and unsure.least < 4 < unsure.most
    one = recommend(increases({k: [v] for k, v in rates.items()}))
    assert one == Recommendation(4, 1, 16, True), "one run each: the intervals know nothing"


@pytest.mark.parametrize(
    ("rates", "ranks", "ends"),
    [
        ({2: 100, 4: 190, 8: 360}, 8, True),
        ({2: 100, 4: 120, 8: 230}, 2, False),
        ({3: 300, 4: 400, 6: 600, 8: 800, 12: 1200, 16: 1250}, 12, False),
        ({1: 100, 2: 198, 8: 300, 16: 600}, 2, False),  # 2 to 8 is no doubling
        ({1: 100, 4: 150, 8: 300, 16: 600}, 1, False),
        ({1: 100, 4: 390, 8: 770, 16: 1500}, 16, True),
    ],
)
def test_counts_need_not_double(rates: dict[int, float], ranks: int, ends: bool) -> None:
    sure = {k: [v * 0.9999, v, v * 1.0001] for k, v in rates.items()}
    assert recommend(increases(sure)) == Recommendation(ranks, ranks, ranks, ends)
