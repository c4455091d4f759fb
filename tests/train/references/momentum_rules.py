"""SGD, LARS and LARC in plain numpy, float64, line by line from their sources; one variable each.

Every rule takes the first weight, the gradients and the rates of all steps, and returns the weight
before the first step and after each. ``adapted``: False for a variable that the config excludes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def sgd(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    momentum: float = 0.0,
    nesterov: bool = False,
    decay: float = 0.0,
    adapted: bool = True,
) -> list[Array]:
    """u = m u + g; w = w - lr u (Goyal et al. 2017, 1706.02677, equations 9 and 10), where g has
    decay w in it; Nesterov's form takes g + m u for u (Sutskever et al. 2013)."""
    path, u = [w], np.zeros_like(w)
    for g, rate in zip(gradients, rates, strict=True):
        loss_gradient = g + decay * w if adapted else g
        u = momentum * u + loss_gradient
        w = w - rate * (loss_gradient + momentum * u if nesterov else u)
        path.append(w)
    return path


def lars(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    momentum: float,
    eta: float,
    decay: float,
    adapted: bool = True,
) -> list[Array]:
    """You et al. 2017 (1708.03888), Algorithm 1: lambda = eta |w| / (|g| + beta |w|);
    v = m v + gamma lambda (g + beta w); w = w - v."""
    path, v = [w], np.zeros_like(w)
    for g, gamma in zip(gradients, rates, strict=True):
        lam, beta = 1.0, 0.0
        if adapted:
            beta = decay
            if np.linalg.norm(w) > 0 and np.linalg.norm(g) > 0:
                lam = eta * np.linalg.norm(w) / (np.linalg.norm(g) + beta * np.linalg.norm(w))
        v = momentum * v + gamma * lam * (g + beta * w)
        w = w - v
        path.append(w)
    return path


def larc_gradient(
    w: Array, g: Array, rate: float, *, trust: float, eps: float, decay: float
) -> Array:
    """What apex's LARC.step leaves in p.grad, its lines in their order."""
    p_norm, g_norm = np.linalg.norm(w), np.linalg.norm(g)
    if p_norm != 0 and g_norm != 0:
        adaptive = trust * p_norm / (g_norm + p_norm * decay + eps)
        adaptive = min(adaptive / rate, 1)
        g = g + decay * w
        g = g * adaptive
    return g


def larc_sgd(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    trust: float,
    eps: float,
    decay: float,
    momentum: float,
    nesterov: bool = False,
    adapted: bool = True,
) -> list[Array]:
    """PyTorch's SGD under it: buf = m buf + g; w = w - lr buf (or lr (g + m buf))."""
    path, buf = [w], np.zeros_like(w)
    for raw, rate in zip(gradients, rates, strict=True):
        g = raw
        if adapted:
            g = larc_gradient(w, raw, rate, trust=trust, eps=eps, decay=decay)
        buf = momentum * buf + g
        w = w - rate * (g + momentum * buf if nesterov else buf)
        path.append(w)
    return path
