"""What a comparison with peers ends in; types only."""

from __future__ import annotations

from typing import Literal

from train.frozen import Frozen

Kind = Literal["node", "send", "receive", "link", "uplink", "uplink-send", "uplink-receive"]


class Suspect(Frozen):
    """nodes: one, or sender and receiver of a link; of an uplink the leaf switch, or two of them.
    ratio: to the peers' median, or for a link to what its ends can do; None where nothing came
    through at all."""

    kind: Kind
    nodes: tuple[str, ...]
    ratio: float | None
    deviations: float | None
    slow: int  # partners with whom it is slow, or fails
    partners: int
    why: str  # the rule that fired


class Decision(Frozen):
    """across: what pairs across leaf switches reach of those within; None: not known.
    middle: bit/s, the median side. visible: a side below this share of it would be a suspect;
    visible_links: a link, below this share of what others reach of their ends' rates;
    visible_across: of those across leaves, below this share of what is usual within them.
    visible_uplinks: an uplink, below this share of the others; None: none was compared. crossing:
    what whole leaves reach of each other at once, of what their nodes reach within them."""

    suspects: tuple[Suspect, ...]
    undecided: str | None
    middle: float | None
    visible: float | None
    across: float | None = None
    visible_links: float | None = None
    visible_across: float | None = None
    visible_uplinks: float | None = None
    crossing: float | None = None
