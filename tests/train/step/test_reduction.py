"""Gradients over real ranks: the mean, and what 16 bits on the wire do to it."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from tests.builders import row
from tests.train.programs import reductions

PROGRAM = Path(reductions.__file__)


def _found(folder: Path, compression: str, size: int) -> list[dict[str, np.ndarray]]:
    return [dict(np.load(folder / f"{compression}-{rank}.npz")) for rank in range(size)]


@pytest.mark.ranks2
def test_reductions_over_two_ranks(start_ranks, tmp_path, invariant):
    """One start of two ranks for all of it."""
    told = json.loads(start_ranks([str(PROGRAM), str(tmp_path)], 2)[0])
    own = [reductions.gradients(rank, 2) for rank in range(2)]
    # of what the ranks hold, in float64: what an exact reduction would give
    mean = {name: np.mean([of[name].astype(float) for of in own], axis=0) for name in own[0]}
    found = {name: _found(tmp_path, name, 2) for name in reductions.COMPRESSIONS}
    for compression, (first, second) in found.items():
        for name in first:
            assert np.array_equal(first[name], second[name], equal_nan=True), (compression, name)
        assert first["small"] == 5.0, compression
        assert {name: first[name].shape for name in mean} == {n: mean[n].shape for n in mean}

    none, fp16, bf16 = (found[name][0] for name in reductions.COMPRESSIONS)
    error = max(np.abs(none[name] - mean[name]).max() for name in reductions.SHAPES)
    invariant("T0 synchronous SGD", "reduced gradient is the mean over ranks", error, 1e-7)
    # the scalar of the noise scale travels with the gradients
    assert told["none"]["operations"] == ["HorovodAllreduce"]

    worst = _relative(fp16["same_sign"], mean["same_sign"])
    invariant("T15 fp16", "relative error of elements, (k+1) 2^-11, k = 2", worst, 3 * 2**-11)
    worst = _relative(bf16["same_sign"], mean["same_sign"])
    invariant("T15 bf16", "relative error of elements, 2 x 2^-8", worst, 2.01 * 2**-8)
    assert worst > 3 * 2**-11  # coarser than fp16: else it was not bfloat16 that travelled

    one, large, tiny, zero, none_at_all = fp16["edges"]
    assert (one, tiny, zero) == (1, 0, 0)
    assert np.isinf(large) and np.isnan(none_at_all)  # for the step to see
    np.testing.assert_allclose(bf16["edges"], mean["edges"], rtol=2.01 * 2**-8)
    invariant("T15 fp16", "zeros stay zeros", abs(zero), 0)
    invariant("T15 bf16", "zeros stay zeros", abs(bf16["edges"][3]), 0)

    for name, other in (("fp16", fp16), ("bf16", bf16)):
        ratio = told[name]["sent"] / told["none"]["sent"]
        invariant(f"T15 {name}", "bytes sent over float32's, less one half", ratio - 0.5, 0.01)
        drift = np.linalg.norm(other["weights"] - none["weights"])
        drift /= np.linalg.norm(none["weights"])
        # bfloat16 has an eighth of fp16's digits, so eight times its allowance
        bound = {"fp16": 1e-3, "bf16": 8e-3}[name]
        invariant(f"T15 {name}", "drift of 20 steps from float32's weights", drift, bound)
        assert drift > 0  # something was rounded


@pytest.mark.tf
def test_eight_ranks_of_fp16_emulated(invariant, monkeypatch):
    """Our casts with NumPy's float16 sum, in the order of a ring: one addition after another."""
    import tensorflow as tf

    from train.step import reduction

    own = [reductions.same_sign(rank, 8) for rank in range(8)]

    def summed(half, name):
        total = half.numpy()
        for values in own[1:]:
            total = total + values.astype(total.dtype)
        assert total.dtype == np.float16
        return total

    monkeypatch.setattr(reduction, "allreduce_sum", summed)
    monkeypatch.setattr(reduction, "allreduce_mean", lambda squares, name: squares)
    gradients, squares = [tf.constant(own[0])], [tf.constant(1.0)]
    (found,), _ = reduction.reducer(row(compression="fp16"), 8)(gradients, squares)
    worst = _relative(found.numpy(), np.mean(np.float64(own), axis=0))
    invariant("T15 fp16", "relative error of elements, (k+1) 2^-11, k = 8", worst, 9 * 2**-11)


@pytest.mark.tf
def test_a_world_of_one_reduces_nothing():
    """Not even Horovod is asked, which was never started here."""
    import tensorflow as tf

    from train.step.reduction import reducer

    gradients, square = [tf.constant([1e9, 1e-9])], tf.constant(1e18)
    for changes in ({}, {"compression": "fp16"}, {"compression": "bf16"}, {"reduction": "adasum"}):
        found, (small,) = reducer(row(**changes), 1)(gradients, [square])
        assert found[0] is gradients[0] and small is square


@pytest.mark.tf
def test_buckets_are_of_neighbours_and_large_gradients_travel_alone():
    """Sizes in MiB, in the order of the forward pass; buckets in that of the backward pass."""
    from train.step.reduction import buckets

    def cut(*mib: float, **more: bool) -> list[list[int]]:
        return buckets([int(size * 2**20) for size in mib], **more)

    assert cut(0.1, 0.2, 0.3) == [[2, 1, 0]]
    assert cut(0.01, 0.01, 6.1, 0.1, 0.1) == [[2], [4, 3, 1, 0]], "the last one waits for the end"
    assert cut(9, 0.1, 0.1) == [[2, 1, 0]], "the first layer's gradient is the last one"
    assert cut(0.6, 0.6, 0.6, 0.6) == [[3, 2], [1, 0]]
    resnet50 = cut(*[0.5] * 188)
    assert len(resnet50) == 6 and sorted(chain.from_iterable(resnet50)) == [*range(188)]
    assert cut(0.6, 0.6, 9, 0.6, one=True) == [[3, 2, 1, 0]]


def _relative(found: np.ndarray, exact: np.ndarray) -> float:
    return float(np.max(np.abs(found - exact) / np.abs(exact)))
