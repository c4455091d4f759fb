"""Whether ranks share cores, which makes their times no scaling figures."""

from __future__ import annotations

import pytest

from jobs.launch import core_groups
from train.runtime import share_cores


@pytest.mark.parametrize(
    ("hosts", "cores", "shared"),
    [
        (("a", "a"), ((0,), (1,)), False),
        (("a", "b"), ((0,), (0,)), False),
        (("a", "a"), ((0, 1), (1, 2)), True),
        (("a", "a"), ((0,), (0,)), True),
        (("a",), ((0, 1),), False),
    ],
)
def test_cores_are_compared_per_host(hosts, cores, shared) -> None:
    assert share_cores(hosts, cores) is shared


@pytest.mark.parametrize(("ranks", "cores", "shared"), [(2, 2, False), (4, 2, True), (2, 1, True)])
def test_more_ranks_than_cores_are_marked(ranks, cores, shared) -> None:
    assert share_cores(("host",) * ranks, core_groups(ranks, 1, range(cores))) is shared
