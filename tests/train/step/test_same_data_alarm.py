"""The alarm: fires for ranks that see the same images, through every rounding, and for no other."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from tests.invariants import Invariant
from tests.train.known_noise import S2
from train.step.noise_scale import epoch_noise, estimate, same_data_alarm


def float32_norms(gradients: list[npt.NDArray[np.float32]]) -> tuple[float, float]:
    """(small, big) of one step as a run computes them: float32 all along."""
    mean = np.zeros_like(gradients[0])
    for gradient in gradients:
        mean = mean + gradient
    mean = mean * np.float32(1 / len(gradients))
    squares = [np.sum(g * g, dtype=np.float32) for g in (*gradients, mean)]
    return float(np.mean(squares[:-1], dtype=np.float32)), float(squares[-1])


def like_a_network(rng: np.random.Generator, d: int = 200_000) -> npt.NDArray[np.float32]:
    """Elements over many orders of magnitude, as gradients have."""
    scale = np.exp(2 * rng.standard_normal(d))
    return (1e-3 * scale * rng.standard_normal(d)).astype(np.float32)


@pytest.mark.parametrize("k", [2, 3, 7, 64])
def test_duplicated_ranks_alarm(k: int, invariant: Invariant) -> None:
    rng = np.random.default_rng(k)
    pairs = [float32_norms([like_a_network(rng)] * k) for _ in range(4)]
    small, big = np.transpose(pairs)
    trace, _ = estimate(small, big, 64, 64 * k)
    share = np.abs(trace / 64 * (1 - 1 / k) / small).max()
    invariant(S2, "duplicated ranks: S = 0, share of the squared norm, float32", share, 2**-18)
    text = same_data_alarm(small, big, 64, 64 * k)
    assert f"in 4 of 4 steps the {k} gradients" in text
    assert f"{64 * k:,} images are worth 64" in text
    found = epoch_noise(small, big, 64, 64 * k, seed=0)
    assert abs(found.trace / found.gradient_sq) < 0.01  # of an image


@pytest.mark.parametrize(("wire", "bits"), [("fp16", 11), ("bf16", 8)])
def test_duplicates_alarm_through_a_compressed_wire(wire: str, bits: int) -> None:
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(6):
        one = like_a_network(rng, 20_000)
        parts, powers = np.frexp(one)
        sent = np.ldexp(np.round(parts * 2**bits) / 2**bits, powers).astype(np.float32)
        pairs.append((float(np.sum(one * one)), float(np.sum(sent * sent))))
    small, big = np.transpose(pairs)
    assert same_data_alarm(small, big, 64, 128, wire) is not None
    noisy = small * (1 - 2.0 ** (1 - bits))
    assert same_data_alarm(small, noisy, 64, 128, wire) is None


def test_little_noise_is_no_alarm() -> None:
    """A noise scale of 5 images seen with batches of 16,384: S/b is 3e-4 of the squared norm."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(6):
        one = like_a_network(rng)
        noise = np.linalg.norm(one) * np.sqrt(5 / 16384 / len(one))
        ranks = [(one + noise * rng.standard_normal(len(one))).astype(np.float32) for _ in range(2)]
        pairs.append(float32_norms(ranks))
    small, big = np.transpose(pairs)
    trace, gradient_sq = estimate(small, big, 16384, 32768)
    assert trace.mean() / gradient_sq.mean() == pytest.approx(5, rel=0.1)
    assert same_data_alarm(small, big, 16384, 32768) is None


def test_the_alarm_wants_nearly_all_steps() -> None:
    small = np.ones(20)
    big = np.where(np.arange(20) < 17, 1.0, 0.6)
    assert same_data_alarm(small, big, 32, 64) is None
    big[17] = 1.0
    text = same_data_alarm(small, big, 32, 64)
    assert text.startswith("in 18 of 20 steps")


def test_steps_that_say_nothing_are_not_counted() -> None:
    """No gradient at all, or no number, is no proof of equal images."""
    assert same_data_alarm(np.zeros(5), np.zeros(5), 32, 64) is None
    assert same_data_alarm([math.nan], [math.nan], 32, 64) is None
    assert same_data_alarm([], [], 32, 64) is None
    mixed = same_data_alarm([0.0, math.inf, 2.0], [0.0, 1.0, 2.0], 32, 64)
    assert mixed.startswith("in 1 of 1 steps")
