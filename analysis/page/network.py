"""The model of the network beside a sweep: from the newest interconnect run of the same nodes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pandas as pd

from analysis.interconnect.load.collectives import all_reduce_times, fitted, one_rank_per_node
from analysis.interconnect.load.run import RunError, load_run
from analysis.prediction.collectives import Link
from analysis.records.frames import Frames
from analysis.topics.scaling.step_parts import Network

#: Beside the sweeps, as make interconnect writes it.
_FOLDER = "interconnect"


def network_beside(frames: Frames) -> Network | None:
    """None: no run lies there that measured all-reduces of all the nodes of a sweep with several,
    or a straight line describes none of them."""
    hosts = {host for names in frames.runs["hosts"].dropna().unique() for host in names.split()}
    sizes = gradient_bytes(frames.runs, frames.traffic)
    if len(hosts) < 2 or not sizes:
        return None
    for folder in sorted((frames.folder.resolve().parent / _FOLDER).glob("*/"), reverse=True):
        with contextlib.suppress(RunError):
            if link := _link(folder, hosts):
                return Network(link, sizes)
    return None


def _link(folder: Path, hosts: set[str]) -> Link | None:
    """Between all of these hosts, for large messages."""
    measured = load_run(folder).collectives
    if measured is None or not one_rank_per_node(measured) or measured.oversubscribed:
        return None
    if not hosts <= {rank.host for rank in measured.ranks}:
        return None
    fit = fitted(all_reduce_times(measured, "horovod"), len(measured.ranks))
    return fit.large.link if fit and fit.is_usable else None


def gradient_bytes(runs: pd.DataFrame, traffic: pd.DataFrame) -> dict[str, float]:
    """Bytes of the gradients of a step, by model: from what the nodes sent.

    With one rank on each of k nodes a ring sends 2 (k - 1) / k of them from each (Patarasu and
    Yuan 2009, section 3); headers and the few messages of an evaluation are in it. Of a node's
    interfaces the one that carried most counts: a port of InfiniBand is also an IP interface.
    """
    alone = runs[(runs["gpus"] == runs["nodes"]) & (runs["nodes"] > 1) & (runs["attempts"] == 1)]
    alone = alone[alone["steps"] > 0].set_index("cell_id")[["model", "nodes", "steps"]]
    sent = traffic.groupby(["cell_id", "host"])["sent_bytes"].max().groupby("cell_id").mean()
    known = alone.join(sent.astype(float).rename("sent"), how="inner")
    k = known["nodes"].astype(float)
    sizes = known["sent"] / known["steps"].astype(float) / (2 * (k - 1) / k)
    return {
        str(model): float(size) for model, size in sizes.groupby(known["model"]).median().items()
    }
