"""What an all-reduce costs by each algorithm, in the alpha-beta model of Hockney, and between which
efficiencies a training run then lies.

A message of m bytes takes alpha + m / B. Here ``alpha`` is in seconds, ``beta`` = 1 / B in seconds
per byte, ``gamma`` the time to add one byte; S is the array of each rank in bytes, n the ranks.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Link(NamedTuple):
    """alpha: seconds per message. beta: seconds per byte. gamma: seconds to add one byte."""

    alpha: float
    beta: float
    gamma: float = 0.0


class Parts(NamedTuple):
    """A time that is alpha x ``messages`` + beta x ``bytes`` + gamma x ``added`` bytes."""

    messages: float
    bytes: float
    added: float

    def seconds(self, link: Link) -> float:
        return self.messages * link.alpha + self.bytes * link.beta + self.added * link.gamma


def ring(n: int, size: float) -> Parts:
    """2 (n - 1) messages of S / n (Patarasu and Yuan 2009, section 3; Thakur et al. 2005, 4.5)."""
    share = (n - 1) / n * size
    return Parts(2 * (n - 1), 2 * share, share)


def recursive_doubling(n: int, size: float) -> Parts:
    """log2 n exchanges of the whole array (Thakur et al. 2005, section 4.5); n a power of two."""
    steps = _steps(n)
    return Parts(steps, steps * size, steps * size)


def halving_doubling(n: int, size: float) -> Parts:
    """Rabenseifner's: reduce-scatter by halves, then back (Thakur et al. 2005, section 4.5)."""
    share = (n - 1) / n * size
    return Parts(2 * _steps(n), 2 * share, share)


def double_tree(n: int, size: float) -> Parts:
    """Two pipelined binary trees, each with half of the array (Sanders, Speck and Traeff 2009)."""
    return Parts(2 * math.ceil(math.log2(n)), 2 * size, size)


def hierarchical(nodes: int, per_node: int, size: float, inside: Link, outside: Link) -> float:
    """Reduce-scatter and all-gather inside a node, a ring of each part between the nodes; seconds.

    As Horovod's HIERARCHICAL_ALLREDUCE and NCCL with one network port per rank do it. Where the
    ranks of a node share one port, ``outside`` is what each gets of it.
    """
    if nodes == 1:
        return ring(per_node, size).seconds(inside)
    within = ring(per_node, size).seconds(inside) if per_node > 1 else 0.0
    return within + ring(nodes, size / per_node).seconds(outside)


class Bracket(NamedTuple):
    """Between these efficiencies a training run must lie, whatever overlaps: a model, not a
    measurement. none: no communication is hidden behind the backward pass; full: as much as fits.
    """

    none: float
    full: float


def bracket(step_s: float, backward_s: float, all_reduce_s: float) -> Bracket:
    """Weak-scaling efficiency T(1) / T(n) of a step of ``step_s`` seconds on one rank.

    Args:
        backward_s: the part of it behind which communication can hide.
        all_reduce_s: of all gradients of a step, one after another.

    Raises:
        ValueError: a time is negative, or the backward pass is longer than the step.
    """
    if not 0 <= backward_s <= step_s or step_s <= 0 or all_reduce_s < 0:
        raise ValueError(
            f"found a step of {step_s} s, a backward pass of {backward_s} s and an all-reduce of "
            f"{all_reduce_s} s; expected 0 <= backward <= step, and none below 0"
        )
    exposed = max(0.0, all_reduce_s - backward_s)
    return Bracket(step_s / (step_s + all_reduce_s), step_s / (step_s + exposed))


def _steps(n: int) -> int:
    """Raises: ValueError: n is no power of two."""
    if n < 1 or n & (n - 1):
        raise ValueError(f"found {n} ranks, expected a power of two: this algorithm halves them")
    return n.bit_length() - 1
