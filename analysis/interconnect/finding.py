"""One thing that a run showed; a verdict is made of them."""

from __future__ import annotations

from typing import Literal

from train.config.frozen import Frozen

#: fault: the network's. open: may be one, but this run cannot tell. remark: good to know.
Weight = Literal["fault", "open", "remark"]


class Finding(Frozen):
    """nodes: that it is about; for a link sender and receiver. ratio: of what healthy peers reach.
    evidence: what was measured, in words."""

    weight: Weight
    what: str  # node, send, receive, link, corrupt, unreachable, lost, contention, ...
    nodes: tuple[str, ...] = ()
    ratio: float | None = None
    evidence: str
