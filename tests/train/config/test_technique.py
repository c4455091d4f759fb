"""Numbers of a technique and of its parts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from train.config.optimizer import Sgd
from train.config.schedule import Grow
from train.config.technique import Technique


def technique(**changes: Any) -> Technique:
    return Technique(**({"name": "t", "base_lr": 0.1, "base_batch": 100} | changes))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("none", 0.1), ("linear", 0.8), ("sqrt", 0.1 * math.sqrt(8)), ("adascale", 0.1)],
)
def test_rules_scale_against_the_base_batch(rule: str, expected: float) -> None:
    found = technique(lr_scaling=rule, optimizer=Sgd()).peak_lr(800)
    assert found == pytest.approx(expected, rel=1e-15)


def test_growth_begins_with_the_nearest_epoch() -> None:
    assert Grow().epochs(40) == (15, 25, 35)
    assert Grow().epochs(12) == (5, 8, 11)  # 4.5, 7.5 and 10.5: half counts up, all alike
