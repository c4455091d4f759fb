"""How often the table of hosts errs, by simulation."""

from __future__ import annotations

import pytest

from tests.bench.host_families import FEW_EACH, SPREADS, Design, share_found, share_of_errors


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_of_sound_hosts_few_families_blame_one(spread: tuple[float, float]) -> None:
    """Whatever the variances of conditions are; docs/statistics.md has larger numbers."""
    assert share_of_errors(FEW_EACH, spread, repeats=10) <= 0.05


def test_a_noisy_condition_of_few_runs_blames_no_host() -> None:
    """With one variance for all conditions, 22 % of 400 such families err."""
    design = Design(hosts=8, each=1, fewest=3, most=12, pool=3, conditions=4)
    assert share_of_errors([design], (0.10, 0.005), repeats=200) <= 0.05


def test_a_host_of_fifteen_percent_is_found() -> None:
    """It holds up every run that it is in, whatever else these use."""
    design = Design(hosts=6, each=2, fewest=12, most=12, pool=6, conditions=2)
    assert share_found([design], (0.03, 0.03), repeats=50) >= 0.95
