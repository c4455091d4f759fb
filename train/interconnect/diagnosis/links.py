"""Pairs that are slower than their two ends are with others; of two nodes, one direction."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from train.interconnect.diagnosis.leaf_switches import Leaves
from train.interconnect.diagnosis.statistics import RECEIVES, SENDS, Limits, Matrix, scale_in
from train.interconnect.measure.rounds import Pair
from train.interconnect.record import Suspect


class Links(NamedTuple):
    """visible: below this share of what others of the kind reach of their ends' rates; None where
    none was measured."""

    suspects: list[Suspect]
    visible: float | None
    visible_across: float | None = None


def slow_links(
    matrix: Matrix, sides: dict[tuple[int, bool], float], leaves: Leaves | None, limits: Limits
) -> Links:
    """Pairs that are slower than their own two ends are with others; those across two leaves (that
    are known) beside each other, all others beside each other."""
    ratios = {
        Pair(i, j): float(matrix.rates[i, j]) / min(sides[i, SENDS], sides[j, RECEIVES])
        for i, j in zip(*np.nonzero(np.isfinite(matrix.rates)), strict=True)
    }
    if not ratios:
        return Links([], None)
    # so many pairs are looked at that a fixed number of deviations would be met by chance
    z = max(limits.z, -NormalDist().inv_cdf(min(0.5, limits.false_links / len(ratios))))
    across = {pair for pair in ratios if leaves is not None and leaves.apart(*pair)}
    near, far = (
        _slow_of_kind(matrix, {pair: ratios[pair] for pair in kind}, z, limits)
        for kind in (ratios.keys() - across, across)
    )
    seen = far.visible if near.visible is None else near.visible
    return Links([*near.suspects, *far.suspects], seen, far.visible)


def _slow_of_kind(matrix: Matrix, ratios: Mapping[Pair, float], z: float, limits: Limits) -> Links:
    if not ratios:
        return Links([], None)
    scale = scale_in(list(ratios.values()), matrix, limits)
    suspects = [
        Suspect(
            kind="link", nodes=(matrix.nodes[pair.sender], matrix.nodes[pair.receiver]),
            ratio=ratio, deviations=scale.deviations(ratio), slow=1, partners=1,
            why=f"below {limits.low:g} of what its two ends reach with others, and more than "
            f"{z:.1f} robust deviations under the other links",
        )
        for pair, ratio in sorted(ratios.items())
        if scale.is_slow(ratio, limits, z)
    ]  # fmt: skip
    return Links(suspects, scale.visible(limits, z))


def slow_direction(matrix: Matrix, limits: Limits) -> Links:
    """Of two nodes: one direction against the other, beyond what repetitions scatter."""
    there, back = float(matrix.rates[0, 1]), float(matrix.rates[1, 0])
    if not (np.isfinite(there) and np.isfinite(back)):
        return Links([], None)
    sender = 0 if there < back else 1
    ratio = min(there, back) / max(there, back)
    scatter = max(limits.floor, float(np.nanmax(matrix.spread)) * 2**0.5)
    deviations = (ratio - 1) / scatter
    visible = min(limits.low, 1 - limits.z * scatter)
    if ratio >= visible:
        return Links([], visible)
    ends = (matrix.nodes[sender], matrix.nodes[1 - sender])
    why = f"below {limits.low:g} of the other direction between the same two nodes"
    suspect = Suspect(kind="link", nodes=ends, ratio=ratio, deviations=deviations, slow=1,
                      partners=1, why=why)  # fmt: skip
    return Links([suspect], visible)
