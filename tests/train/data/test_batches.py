"""Which images a step sees, however the global batch is cut into ranks and accumulated batches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import config, row
from tests.invariants import Invariant
from train.config.plan import RunPlan
from train.config.schedule import CropFlip
from train.data.batches import Feed
from train.data.dataset import Dataset, make_dataset
from train.data.sampling import shuffled

N = 100


def numbered() -> Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), dtype=np.uint8)
    pixels[:, 0, 0, 0] = np.arange(N)
    return make_dataset("n", ["a", "b"], (pixels, np.arange(N) % 2), (pixels[:4], np.arange(4) % 2))


def steps(epoch: int = 0, **changes: object):
    """Of every rank: images of each of its batches, [step][batch]."""
    of = config(**changes)
    plan = RunPlan(of, N).epochs[epoch]
    used = np.arange(N)
    return [
        [
            list(zip(call.images[0], call.labels[0], strict=True))
            for call in Feed(of, numbered(), used, rank, of.gpus).epoch(plan, [1] * plan.steps)
        ]
        for rank in range(of.gpus)
    ]


def ids(batches) -> set[int]:
    return {int(i) for images, _ in batches for i in images[:, 0, 0, 0]}


@pytest.mark.parametrize(
    ("gpus", "accumulation", "batch"), [(2, 1, 10), (4, 1, 5), (5, 2, 2), (3, 2, 7)]
)
def test_the_ranks_share_the_epochs_permutation(
    invariant: Invariant, gpus: int, accumulation: int, batch: int
) -> None:
    cut = steps(1, gpus=gpus, accumulation=accumulation, batch_per_rank=batch)
    own = [set.union(*map(ids, rank)) for rank in cut]
    seen = set.union(*own)
    twice = sum(map(len, own)) - len(seen)
    invariant("T0 naive", "the ranks' images of an epoch: seen by two ranks", twice, 0)
    whole = N - N % (gpus * accumulation * batch)  # the last, broken batch is left out
    order = shuffled(N, config().seed, 1)
    missed = len(seen ^ {int(i) for i in order[:whole]})
    invariant("T0 naive", "... not of the epoch's permutation, or missing of it", missed, 0)


def test_accumulated_batches_are_those_of_as_many_ranks() -> None:
    """Rank r's p batches are those of ranks r p to r p + p - 1 of a world p times as large."""
    four = steps(gpus=4, batch_per_rank=5)
    two = steps(gpus=2, accumulation=2, batch_per_rank=5)
    for number in range(len(four[0])):
        emulated = [images for rank in two for images, _ in rank[number]]
        real = [rank[number][0][0] for rank in four]
        assert all(np.array_equal(a, b) for a, b in zip(emulated, real, strict=True))


def test_ranks_of_same_repeat_the_accumulated_batches_of_one_rank() -> None:
    cut = {"accumulation": 2, "batch_per_rank": 5}
    (alone,) = steps(gpus=1, **cut)
    for rank in steps(gpus=2, partition="same", **cut):
        for number, own in enumerate(rank):
            assert [ids([batch]) for batch in own] == [ids([batch]) for batch in alone[number]]


def test_epochs_of_fewer_steps_go_through_the_images_and_begin_anew() -> None:
    """A pass has 6 steps of 16 images: 3 epochs of 2 steps, or one of 4, which leaves 2 out."""
    cut = {"gpus": 2, "batch_per_rank": 8, "steps_per_epoch": 2, "epochs": 7}
    for rank in range(2):
        whole = [steps(epoch, gpus=2, batch_per_rank=8, epochs=3)[rank] for epoch in range(3)]
        for number in range(7):
            found = steps(number, **cut)[rank]
            passed, first = divmod(number, 3)
            expected = whole[passed][2 * first : 2 * first + 2]
            assert [ids(step) for step in found] == [ids(step) for step in expected]
    plan = RunPlan(config(**{**cut, "steps_per_epoch": 4}), N)
    assert [epoch.pass_number for epoch in plan.epochs] == list(range(7))
    assert plan.left_over == N - 4 * 16 and plan.total_steps == 28


def test_images_change_only_where_the_technique_says_so_and_as_the_epoch_does() -> None:
    how = row(augmentation=CropFlip(crop=2, flip="none"))
    plain = steps(gpus=1, batch_per_rank=50)[0]
    changed = steps(gpus=1, batch_per_rank=50, technique=how)[0]
    assert all(np.array_equal(a[0][1], b[0][1]) for a, b in zip(plain, changed, strict=True))
    assert not np.array_equal(plain[0][0][0], changed[0][0][0])
    again = steps(gpus=2, batch_per_rank=25, technique=how)
    assert np.array_equal(changed[0][0][0][:25], again[0][0][0][0])  # not a matter of the cut


def test_calls_of_several_steps_hold_the_same_batches_for_each_process() -> None:
    of = config(gpus=4, batch_per_rank=5)
    plan = RunPlan(of, N).epochs[0]
    single = steps(gpus=4, batch_per_rank=5)
    feed = Feed(of, numbered(), np.arange(N), 1, 2, 2)
    first, last = feed.epoch(plan, [plan.steps - 1, 1])
    assert first.images.shape == (plan.steps - 1, 2, 5, 8, 8, 3) and len(last) == 1
    for number, own in enumerate([*first.images, *last.images]):
        for images, rank in zip(own, (2, 3), strict=True):
            assert np.array_equal(images, single[rank][number][0][0])
    assert np.array_equal(first.after(2).labels, first.labels[2:])


@pytest.mark.parametrize(
    ("gpus", "batch", "each"), [(1, 8, 7), (2, 8, 3), (8, 8, 1), (12, 8, 1), (2, 50, 1), (3, 11, 1)]
)
def test_statistics_are_estimated_from_whole_batches_as_many_on_every_rank(
    monkeypatch: pytest.MonkeyPatch, gpus: int, batch: int, each: int
) -> None:
    """Of so many images as in training, however many ranks there are; and synchronised batch norm
    would wait for ever for a rank that has one batch fewer."""
    from train.trainer import batch_statistics as statistics

    monkeypatch.setattr(statistics, "ESTIMATED_FROM", 60)
    of, used = config(gpus=gpus, batch_per_rank=batch), np.arange(N)
    found = [
        list(statistics.estimation_batches(of, numbered(), used, r, gpus)) for r in range(gpus)
    ]
    assert [[len(images) for images in rank] for rank in found] == [[batch] * each] * gpus
    seen = [int(i) for rank in found for images in rank for i in images[:, 0, 0, 0]]
    assert len(set(seen)) == len(seen) == gpus * each * batch
