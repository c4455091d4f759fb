"""The model of the network beside a sweep: from the newest interconnect run of the same nodes."""

from __future__ import annotations

import contextlib
from pathlib import Path

from analysis.interconnect.collectives import fitted
from analysis.interconnect.run import RunError, load_run
from analysis.prediction.collectives import Link
from analysis.records.frames import Frames

#: Beside the sweeps, as make interconnect writes it.
_FOLDER = "interconnect"


def network_beside(frames: Frames) -> Link | None:
    """Between all nodes of the sweep, for large messages; None: it used one node, or no run lies
    there that measured all-reduces of all of them and that a straight line describes."""
    hosts = {host for names in frames.runs["hosts"] for host in names}
    if len(hosts) < 2:
        return None
    for folder in sorted((frames.folder.resolve().parent / _FOLDER).glob("[!.]*/"), reverse=True):
        with contextlib.suppress(RunError):
            if link := _link(folder, hosts):
                return link
    return None


def _link(folder: Path, hosts: set[str]) -> Link | None:
    measured = load_run(folder).collectives
    if measured is None or measured.oversubscribed:
        return None
    if not hosts <= {rank.host for rank in measured.ranks}:
        return None
    fit = fitted(measured, "horovod", len(measured.ranks))
    return fit.large.link if fit and fit.is_usable else None
