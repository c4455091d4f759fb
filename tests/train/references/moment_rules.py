"""Adam, AdamW, LAMB and NovoGrad in plain numpy, float64, from their papers; one variable each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def adam(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    b1: float,
    b2: float,
    eps: float,
    decoupled: float = 0.0,
    adapted: bool = True,
) -> list[Array]:
    """Kingma and Ba 2015 (1412.6980), section 2's order of the corrections, with epsilon-hat.

    ``decoupled``: lambda of Loshchilov and Hutter 2019 (1711.05101), Algorithm 2, times the rate.
    """
    path, m, v = [w], np.zeros_like(w), np.zeros_like(w)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        alpha = rate * np.sqrt(1 - b2**t) / (1 - b1**t)
        decay = rate * decoupled * w if adapted else 0.0
        w = w - alpha * m / (np.sqrt(v) + eps) - decay
        path.append(w)
    return path


def lamb(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    b1: float,
    b2: float,
    eps: float,
    decay: float = 0.0,
    adapted: bool = True,
    ratios: list[float] | None = None,
) -> list[Array]:
    """You et al. 2020 (1904.00962v5), Algorithm 2, phi(x) = x. What is not adapted gets no decay
    and a ratio of 1, which is Algorithm 1 of Adam's paper as printed. ``ratios`` takes them."""
    path, m, v = [w], np.zeros_like(w), np.zeros_like(w)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        r = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        ratio = 1.0
        if adapted:
            r = r + decay * w
            if np.linalg.norm(w) > 0 and np.linalg.norm(r) > 0:
                ratio = float(np.linalg.norm(w) / np.linalg.norm(r))
        if ratios is not None:
            ratios.append(ratio)
        w = w - rate * ratio * r
        path.append(w)
    return path


def novograd(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    b1: float,
    b2: float,
    eps: float,
    decay: float = 0.0,
    averaging: bool = False,
    adapted: bool = True,
) -> list[Array]:
    """Ginsburg et al. 2019 (1905.11286), Algorithm 1; the first gradient is not zero here."""
    d = decay if adapted else 0.0
    share = (1 - b1) if averaging else 1.0
    v = np.linalg.norm(gradients[0]) ** 2
    m = gradients[0] / np.linalg.norm(gradients[0]) + d * w
    path = [w, w - rates[0] * m]
    for g, rate in zip(gradients[1:], rates[1:], strict=True):
        w = path[-1]
        v = b2 * v + (1 - b2) * np.linalg.norm(g) ** 2
        m = b1 * m + share * (g / (np.sqrt(v) + eps) + d * w)
        path.append(w - rate * m)
    return path
