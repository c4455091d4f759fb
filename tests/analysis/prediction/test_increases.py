"""What more ranks are worth, against hand-worked rates."""

from __future__ import annotations

import pytest

from analysis.prediction.increases import Recommendation, increases, recommend


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
