"""Other shapes of experiment, end to end: synthetic data, strong scaling, the course's option 2."""

from __future__ import annotations

import pytest

from tests.sweeps import make_bench

pytestmark = [pytest.mark.ranks2, pytest.mark.slow]


def test_synthetic_data_has_a_throughput_and_no_accuracy(tmp_path, data_root) -> None:
    bench = make_bench(
        tmp_path, data_root,
        """
title: throughput only
dataset: synthetic
model: cnn
epochs: 2
data_fraction: 0.02
batch_per_rank: 100
matrix: {gpus: [1], technique: [naive], seed: [0]}
""",
    )  # fmt: skip
    assert bench.run().returncode == 0
    (record,) = bench.records()
    assert record.throughput.images_per_s > 0
    for epoch in record.epochs:
        assert epoch.train_accuracy is None and epoch.validation_accuracy is None
    assert "no meaning" in record.missing["epochs.validation_accuracy"]


def test_strong_scaling_and_option_2(tmp_path, data_root) -> None:
    bench = make_bench(
        tmp_path, data_root,
        """
title: one global batch
dataset: digits
model: cnn
epochs: 2
scaling: strong
global_batch: 128
partition: independent
matrix: {gpus: [1, 2], technique: [naive], seed: [0]}
""",
    )  # fmt: skip
    assert bench.run().returncode == 0
    for record in bench.records():
        assert record.config.global_batch == 128
        assert record.config.batch_per_rank == 128 // record.config.gpus
        assert record.data.order.startswith("option 2")
