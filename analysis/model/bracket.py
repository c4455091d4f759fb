"""Between which efficiencies a training run must lie, whatever overlaps: a model, no measurement.

E_none: nothing of the communication is hidden behind the backward pass; E_full: as much as fits.
"""

from __future__ import annotations

from typing import NamedTuple


class Bracket(NamedTuple):
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
