"""What makes all of a run's numbers doubtful, or less sharp than they look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analysis.interconnect.finding import Finding
from train.interconnect.record import BUSY, Measurement, Tournament

#: Repeated samples of one pair may scatter so much, or nothing can be decided.
NOISE = 0.05
#: A run that would have missed a fault down to this share says nothing.
VISIBLE = 0.75
#: A baseline or a specification can stand in for the peers that two nodes lack.
TWO_ALONE = "two nodes"
#: Headers and acknowledgements add to what a measurement sends; less means another way was taken.
CARRIED = 0.99


def doubts(found: Tournament) -> Iterator[Finding]:
    """Findings about the run itself."""
    decision = found.decision
    if decision.undecided:
        alone = len(found.nodes) == 2
        what = TWO_ALONE if alone else "peers"
        yield Finding(weight="open", what=what, evidence=decision.undecided)
    elif decision.visible is not None and decision.visible < VISIBLE:
        yield Finding(
            weight="open", what="scatter",
            evidence=f"nodes scatter so much that only faults below {decision.visible:.2f} of the "
            "median would have been seen",
        )  # fmt: skip
    good = [m for m in found.measurements if m.rates]
    busy = [m for m in good if _busy(m)]
    if good and 2 * len(busy) > len(good):
        yield Finding(
            weight="open", what="cpu-limited",
            evidence=f"in {len(busy)} of {len(good)} measurements an end computed for more than "
            f"{BUSY:.0%} of the time: what was measured is processors, not links",
        )  # fmt: skip
    if found.noise is not None and found.noise.cv > NOISE:
        yield Finding(
            weight="open", what="noise", nodes=found.noise.pair,
            evidence=f"repeated samples of one pair alone scatter by {found.noise.cv:.1%}, "
            f"expected at most {NOISE:.0%}: something else uses these nodes or links",
        )  # fmt: skip
    if found.noise is not None and found.serial:
        yield Finding(
            weight="remark", what="contention",
            evidence=f"pairs in company reach {found.noise.together:.2f} of their rate alone, so "
            "they were measured one at a time: an oversubscribed fabric, or one machine",
        )  # fmt: skip
    yield from _interfaces(good)


def _busy(measurement: Measurement) -> bool:
    ends = (measurement.at_sender, measurement.at_receiver)
    return any(end is not None and end.is_busy for end in ends)


def _interfaces(good: Sequence[Measurement]) -> Iterator[Finding]:
    """Whether the bytes went through the interfaces that were to be measured."""
    uncounted, elsewhere = set(), {}
    for m in good:
        sides = (
            (m.sender, m.at_sender.sent_bytes if m.at_sender else None),
            (m.receiver, m.at_receiver.received_bytes if m.at_receiver else None),
        )
        for node, carried in sides:
            if carried is None:
                uncounted.add(node)
            elif carried < CARRIED * m.bytes:
                elsewhere[node] = carried / m.bytes
    if elsewhere:
        least = min(elsewhere.values())
        yield Finding(
            weight="open", what="interface", nodes=tuple(sorted(elsewhere)),
            evidence=f"the interface carried {least:.0%} of what was sent: the traffic takes "
            "another way",
        )  # fmt: skip
    if uncounted:
        yield Finding(
            weight="open", what="interface", nodes=tuple(sorted(uncounted)),
            evidence="byte counters could not be read: no proof of the way that was taken",
        )  # fmt: skip
