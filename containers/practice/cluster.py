"""The practice cluster as one thing: up, down, its health, and faults on purpose.

Everything that lives is found by the keepers of its spaces, and everything on file lies in one
tmpfs, so that a cluster of which parts died goes as completely as a healthy one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

import runner
from locks import SetupError
from users import needed, view_commands

from . import daemons, network, spaces
from .files import write
from .place import CONTROLLER, NODES, SPACES, Place, Shape, free_subnet, shape_from_json, shape_of


@dataclass(frozen=True)
class Health:
    """What runs of a cluster; ``missing``: spaces and daemons that should and do not."""

    exists: bool
    missing: tuple[str, ...]
    shape: Shape | None

    @property
    def good(self) -> bool:
        return self.exists and not self.missing and self.shape is not None


def shape_here(place: Place) -> Shape:
    """The running cluster's shape; SetupError where none is written down, or it cannot be read."""
    try:
        return shape_from_json(json.loads(place.state.read_text()))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SetupError(
            f"no practice cluster runs in {place.folder} ({error}). Start it: make cluster"
        ) from error


def health(place: Place) -> Health:
    there = spaces.keepers(place)
    exists = bool(there) or bool(spaces.marked(place)) or place.folder.is_mount()
    try:
        shape = shape_here(place)
    except SetupError:
        return Health(exists, ("state.json",), None)
    missing = [space for space in SPACES if space not in there]
    wanted = [(CONTROLLER, "slurmctld"), (CONTROLLER, "munged")]
    wanted += [(node, "slurmd") for node in NODES]
    missing += [f"{name} of {space}" for space, name in wanted
                if space in there and daemons.daemon_pid(place, space, name) is None]  # fmt: skip
    return Health(exists, tuple(missing), shape)


def up(place: Place) -> Shape:
    """Make the cluster and wait until all nodes are idle. The machine must have what it needs.

    Raises SetupError where it did not come up; nothing of it is left then.
    """
    routes = runner.run(["ip", "-4", "route", "show", "table", "all"])
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    cores = sorted(os.sched_getaffinity(0))
    shape = shape_of(free_subnet(routes), cores, memory_mb)
    try:
        write(place, shape)
        _start(place, shape)
        daemons.wait_until_idle(place)
    except BaseException as error:
        logs = daemons.last_words(place)
        down(place)
        if isinstance(error, SetupError):
            raise SetupError(f"{error}{logs}") from error
        raise
    return shape


def _start(place: Place, shape: Shape) -> None:
    first = spaces.make_space(place, CONTROLLER, None)
    for command in network.controller_commands(place, shape, first):
        runner.run(command)
    for command in spaces.room_commands(place, CONTROLLER):
        daemons.run_inside(place, CONTROLLER, command)
    daemons.run_inside(place, CONTROLLER, daemons.munged_argv(place))
    start_controller(place)
    for node in NODES:
        start_node(place, node)


def start_node(place: Place, node: str) -> None:
    """Start a node's slurmd, after its space if that is gone, too. Does nothing where it runs."""
    shape = shape_here(place)
    there = spaces.keepers(place)
    if node not in there:
        there[node] = spaces.make_space(place, node, spaces.keeper(place, CONTROLLER))
        for command in network.node_commands(shape, node, there):
            runner.run(command)
        stage = place.folder / node / "view"
        for command in [*spaces.room_commands(place, node), *view_commands(needed(), stage)]:
            daemons.run_inside(place, node, command)
    cores = next(n.cores for n in shape.nodes if n.name == node)
    daemons.start(place, node, daemons.slurmd_argv(node, cores), "slurmd")


def stop_node(place: Place, node: str, *, power: bool = False) -> None:
    """Stop a node's slurmd: what runs there goes on, and Slurm hears nothing more from the node.

    ``power``: end everything on the node at once, as if its power failed.
    """
    if power:
        spaces.keeper(place, node)
        spaces.end_space(place, node)
    else:
        daemons.stop(place, node, "slurmd")


def limit(
    place: Place,
    nodes: Sequence[str],
    rate: str,
    *,
    way: str = "both",
    to: str | None = None,
    rest: str | None = None,
) -> None:
    """Make links slow, or with rate ``off`` as fast as they were.

    Raises SetupError where there is no such rate or cluster, or the kernel refuses.
    """
    shape, there = shape_here(place), spaces.keepers(place)
    for node in nodes:
        if node not in there and rate == network.OFF:
            continue  # its links went with it
        spaces.keeper(place, node)
        for command in network.limit_commands(shape, node, rate, there, way=way, to=to, rest=rest):
            runner.run(command, f"limiting {node}'s link to {rate} (expected like 200mbit, or off)")


def start_controller(place: Place) -> None:
    """Start slurmctld and wait until it answers."""
    daemons.start(place, CONTROLLER, ["slurmctld"], "slurmctld")
    spaces.wait_for(lambda: bool(daemons.node_states(place)), 30, "slurmctld does not answer")


def stop_controller(place: Place) -> None:
    """Stop slurmctld: jobs go on, submissions and queries fail."""
    daemons.stop(place, CONTROLLER, "slurmctld")


def down(place: Place) -> bool:
    """End and remove everything of the cluster; false where there was nothing.

    Raises SetupError where something cannot be removed.
    """
    there = bool(spaces.marked(place)) or place.folder.is_mount()
    spaces.end_space(place, CONTROLLER)
    # it goes with the controller's network, which the kernel takes apart a moment later
    runner.output(["ip", "link", "delete", place.login_link])
    while place.folder.is_mount():
        if runner.output(["umount", str(place.folder)]) is None:
            # somebody's shell stands in it: it goes when they leave
            runner.run(["umount", "--lazy", str(place.folder)])
    if place.folder.is_dir():
        try:
            place.folder.rmdir()
        except OSError as error:
            raise SetupError(
                f"{place.folder} holds files that are not this cluster's ({error}): look at them "
                "and remove the folder"
            ) from error
    return there
