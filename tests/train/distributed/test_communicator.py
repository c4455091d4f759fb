"""What ranks tell each other, on two real ranks; and that a world of one needs nobody."""

from __future__ import annotations

import json

import numpy as np
import pytest

PROGRAM = "tests/train/programs/ranks_talk.py"


@pytest.mark.tf
def test_a_world_of_one_tells_itself() -> None:
    import tensorflow as tf

    from train.distributed.communicator import Ranks

    alone = Ranks(0, 1)
    alone.barrier()
    assert alone.summed(np.array([1.5])) == 1.5
    assert alone.broadcast_int(3) == 3
    assert alone.allgather("a") == ["a"]
    assert len(alone.common_hash([tf.Variable([1.0])])) == 64


@pytest.mark.ranks2
def test_two_ranks_agree_and_unequal_weights_are_an_error(start_ranks) -> None:
    for rank, out in enumerate(start_ranks([PROGRAM], 2)):
        found = json.loads(out)
        assert found == {
            "summed": [1.0, 4.0], "told": 7, "gathered": ["rank 0", "rank 1"],
            "variable": [5.0], "value": "of rank 0", "equal": True,
            "unequal": "the ranks' weights differ after training",
        }, rank  # fmt: skip
