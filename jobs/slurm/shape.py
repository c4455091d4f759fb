"""Shapes: how many nodes a cell needs at a site, and how many ranks run on each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jobs.site import Site
from train.errors import ConfigError


@dataclass(frozen=True)
class Shape:
    """Equal nodes; reports call ``size`` the number of GPUs."""

    nodes: int
    ranks_per_node: int

    @property
    def size(self) -> int:
        return self.nodes * self.ranks_per_node

    def __str__(self) -> str:
        nodes = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        ranks = "1 rank" if self.ranks_per_node == 1 else f"{self.ranks_per_node} ranks"
        return f"{nodes} x {ranks}"


def shape_of(gpus: int, site: Site) -> Shape:
    """As few nodes as hold ``gpus`` ranks, with equally many on each.

    Raises:
        ConfigError: the ranks cannot be spread equally, or need more nodes than a job may have.
    """
    nodes = math.ceil(gpus / site.ranks_per_node)
    if site.max_nodes is not None and nodes > site.max_nodes:
        most = site.max_nodes * site.ranks_per_node
        raise ConfigError(
            f"gpus={gpus} needs {nodes} nodes with up to {_ranks(site)} each, and the site allows "
            f"a job {site.max_nodes} (max_nodes): use at most gpus={most}"
        )
    if gpus % nodes:
        near = " or ".join(f"gpus={count}" for count in _nearest(gpus, site))
        raise ConfigError(
            f"gpus={gpus} cannot be spread equally: a node of the site holds {_ranks(site)}, and "
            f"{nodes} nodes do not divide {gpus}; nearest: {near}"
        )
    return Shape(nodes, gpus // nodes)


def _ranks(site: Site) -> str:
    return "1 rank" if site.ranks_per_node == 1 else f"{site.ranks_per_node} ranks"


def _nearest(gpus: int, site: Site) -> list[int]:
    """The next possible counts below and above."""
    most = math.inf if site.max_nodes is None else site.max_nodes * site.ranks_per_node
    # whole nodes always fit, so both searches end within one node's ranks
    below = next(count for count in range(gpus - 1, 0, -1) if _fits(count, site))
    above = next(count for count in range(gpus + 1, gpus * 2 + 1) if _fits(count, site))
    return [below, above] if above <= most else [below]


def _fits(gpus: int, site: Site) -> bool:
    return gpus % math.ceil(gpus / site.ranks_per_node) == 0
