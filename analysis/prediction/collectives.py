"""What an all-reduce costs in the alpha-beta model of Hockney: a message of m bytes takes
alpha + m / B. Here ``alpha`` is in seconds and ``beta`` = 1 / B in seconds per byte."""

from __future__ import annotations

from typing import NamedTuple


class Link(NamedTuple):
    """alpha: seconds per message. beta: seconds per byte."""

    alpha: float
    beta: float


class Parts(NamedTuple):
    """A time that is alpha x ``messages`` + beta x ``bytes``."""

    messages: float
    bytes: float

    def seconds(self, link: Link) -> float:
        return self.messages * link.alpha + self.bytes * link.beta


def ring(n: int, size: float) -> Parts:
    """An array of ``size`` bytes over n ranks: 2 (n - 1) messages of S / n (Patarasu and Yuan 2009,
    section 3; Thakur et al. 2005, 4.5)."""
    return Parts(2 * (n - 1), 2 * (n - 1) / n * size)
