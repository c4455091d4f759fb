"""How ends of ranks are sorted."""

from __future__ import annotations

from jobs.cell.ranks import Ended, bad_ends


def test_bad_ends_are_those_of_the_ranks_own() -> None:
    ended = {
        2: Ended(1, 1.0, False), 0: Ended(0, 1.0, False), 1: Ended(85, 1.0, False),
        3: Ended(-9, 1.0, True), 4: Ended(-11, 1.0, False),
    }  # fmt: skip
    assert list(bad_ends(ended)) == [2, 4]
