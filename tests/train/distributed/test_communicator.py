"""What ranks tell each other, on two real ranks."""

from __future__ import annotations

import json

import pytest

PROGRAM = "tests/train/programs/ranks_talk.py"


@pytest.mark.ranks2
def test_two_ranks_agree_and_unequal_weights_are_an_error(start_ranks) -> None:
    for rank, out in enumerate(start_ranks([PROGRAM], 2)):
        found = json.loads(out)
        assert found == {
            "summed": [1.0, 4.0], "alone": 7, "gathered": ["rank 0", "rank 1"],
            "variable": [5.0], "value": "of rank 0", "equal": True,
            "unequal": "the ranks' weights differ after training", "arrays": [0, 0],
            "made": "by rank 0",
            "DataError": ["DataError: no file", "ConfigError: no file"][rank],
            "KeyError": ["KeyError: 'x'", "FirstFailed: rank 0 failed: KeyError: 'x'"][rank],
        }, rank  # fmt: skip
