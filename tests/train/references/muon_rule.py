"""Muon in plain numpy, float64: Newton-Schulz by what it does to singular values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def quintic(values: Array, steps: int) -> Array:
    """The iterated polynomial of Jordan's Muon on singular values."""
    for _ in range(steps):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    return values


def orthogonalised(matrix: Array, steps: int) -> Array:
    """U p(S / |S|) V' of the decomposition U S V'; an odd polynomial in the matrix is that."""
    u, s, vt = np.linalg.svd(matrix, full_matrices=False)
    return u @ np.diag(quintic(s / np.linalg.norm(s), steps)) @ vt


def muon(
    w: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    momentum: float,
    nesterov: bool,
    steps: int,
    fix_norm: bool,
) -> list[Array]:
    """A kernel [..., in, out] in the layout of the original, [out, in, ...]: its lines in order."""
    path, buf = [w], 0.0
    p = np.moveaxis(w, -1, 0)
    for raw, rate in zip(gradients, rates, strict=True):
        g = np.moveaxis(raw, -1, 0)
        buf = momentum * buf + g
        g = g + momentum * buf if nesterov else buf
        if fix_norm:
            p = p * (len(p) ** 0.5 / np.linalg.norm(p))
        update = orthogonalised(g.reshape(len(g), -1), steps).reshape(g.shape)
        p = p - rate * update
        path.append(np.moveaxis(p, 0, -1))
    return path
