"""Several steps in one graph are the steps in three graphs, bit for bit."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.invariants import Invariant
from tests.train.step.test_step_parts import Small, batches, small, together
from tests.train.step.test_train_step import PROGRAMS
from train.config.optimizer import (
    Adam,
    AdamW,
    Lamb,
    Larc,
    Lars,
    Muon,
    NovoGrad,
    NovoGradTfa,
    Sgd,
)

pytestmark = pytest.mark.tf
RATES = [0.01 * (1 + number) for number in range(7)]
#: Trusts and decays with which every path of a rule is taken in so small a network.
OPTIMIZERS = [
    Sgd(momentum=0.9, nesterov=True), Adam(), AdamW(weight_decay=0.1), Lamb(weight_decay=0.01),
    Lars(), Larc(trust=1e-4), NovoGrad(), NovoGradTfa(),
    Muon(rest="lamb", dense=True, fix_norm=False),
]  # fmt: skip


def one_by_one(one: Small, given: list[Any], rates: list[float]) -> list[Any]:
    return [
        one.moved(own, rate, n)[0] for n, (own, rate) in enumerate(zip(given, rates, strict=True))
    ]


def apart(results: list[Any], others: list[Any]) -> int:
    """Results that differ, but for what only one of the forms measures."""
    return sum(
        not all(
            np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
            for name in a._fields
            if name != "parts"
        )
        for a, b in zip(results, others, strict=True)
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o.name)
@pytest.mark.parametrize(
    "more", [{}, {"noise_batch": 2}, {"precision": "mixed_float16", "clip_norm": 0.1}],
    ids=["plain", "noise", "half precision, clipped"],
)  # fmt: skip
def test_seven_steps_in_two_calls_are_seven_calls(
    invariant: Invariant, optimizer: Any, more: dict[str, Any]
) -> None:
    split, joined = (small(optimizer=optimizer, **more) for _ in range(2))
    given = [batches(1, 8, seed=number) for number in range(7)]
    told = one_by_one(split, given, RATES)
    found = joined.step(together(given[:4]), RATES[:4], 0)
    found += joined.step(together(given[4:]), RATES[4:], 4)
    off = np.abs(split.weights() - joined.weights()).max()
    what = f"7 steps ({', '.join(more) or 'plain'}): weights in one graph and in three"
    invariant(f"T16 {optimizer.name}", what, off, 0)
    assert apart(told, found) == 0
    trust = [np.concatenate(one.step.trust_factors or [[]]) for one in (split, joined)]
    assert np.array_equal(*trust) and len(trust[0]) == 7 * bool(joined.step.trust)
    assert split.step.last_rate == joined.step.last_rate == RATES[-1]


def test_an_accumulated_step_in_one_graph_is_that_in_three(invariant: Invariant) -> None:
    split, joined = (small(optimizer=Adam(), noise_batch=2) for _ in range(2))
    given = [batches(3, 8, seed=number) for number in range(3)]
    told = one_by_one(split, given, RATES[:3])
    found = [
        result
        for number, own in enumerate(given)
        for result in joined.step(together([own]), [RATES[number]], number)
    ]
    off = np.abs(split.weights() - joined.weights()).max()
    invariant("T16 accumulation", "3 steps of 3 batches: one graph and three", off, 0)
    assert apart(told, found) == 0 and found[0].images == 24


def test_a_call_ends_at_the_step_that_overflows() -> None:
    """The next call goes on with the step after it, at the rate that this one was to have."""
    one = small(precision="mixed_float16", optimizer=Lamb())
    one.step.loss_scale.scale.assign(2.0**60)
    given, before = [batches(1, 8, seed=number) for number in range(3)], one.weights()
    (result,) = one.step(together(given), RATES[:3], 0)
    assert result.skipped and not math.isfinite(result.gradient_sq)
    assert not len(one.step.trust_factors[0])
    assert np.array_equal(one.weights(), before) and one.step.last_rate is None
    assert float(one.step.loss_scale.scale) == 2.0**59
    assert int(one.step.optimizer.iterations.numpy()) == 0


@pytest.mark.ranks2
def test_two_ranks_in_one_graph_are_two_ranks_in_three(
    start_ranks: Any, data_root: Any, invariant: Invariant
) -> None:
    """With gradients in one group, and with each in a message of its own."""
    outs = [json.loads(out) for out in start_ranks([str(PROGRAMS / "one_graph.py"), data_root], 2)]
    for name, found in outs[0].items():
        assert found["moved"] > 1e-2
        invariant(f"T16 {name}", "12 steps of 2 ranks: one graph and three", found["off"], 0)
        assert found["hash"] == outs[1][name]["hash"], f"{name}: ranks differ"
        assert any(map(is_late, found["parts"], outs[1][name]["parts"])), name


def is_late(first: dict[str, float], late: dict[str, float]) -> bool:
    """Whether a step shows that rank 1 came a second after rank 0; the machine may spoil one."""
    others = (late["waiting_s"], first["negotiation_s"], late["negotiation_s"])
    waiting_s = first["waiting_s"]
    return 0.3 < waiting_s <= first["communication_s"] and max(others) < waiting_s / 2


@pytest.mark.ranks2
@pytest.mark.slow
def test_three_ranks_train_the_same_bits_twice(start_ranks: Any, data_root: Any) -> None:
    """From three addends on their order matters, which is that of their places in a buffer."""
    case = "sgd, buckets as trained"
    first, second = (
        json.loads(start_ranks([str(PROGRAMS / "one_graph.py"), data_root, case], 3)[0])[case]
        for _ in range(2)
    )
    assert first["hash"] == second["hash"] and first["moved"] > 1e-2
