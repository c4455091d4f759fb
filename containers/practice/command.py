"""The command line of the practice cluster."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import apptainer
import terminal
import users
from locks import SetupError, table
from runner import guarded, only_one, output, speaker

from . import cluster, needs
from .daemons import node_states, slurm_environment
from .network import WAYS, nodes_named
from .place import NODES, SPACES, Place, place_of
from .spaces import enter_argv, keeper

say = speaker("cluster")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python3 containers/practice",
        description="A real Slurm with four nodes on this machine (see docs/practice-cluster.md). "
        "HOROSCALE_PRACTICE=DIR names another one.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="start it; nothing happens where it runs")
    commands.add_parser("down", help="end it and remove its files")
    commands.add_parser("status", help="what runs of it; exit code 1 where something is missing")
    run = commands.add_parser("exec", help="run a command as root in a node or the controller")
    run.add_argument("space", choices=SPACES)
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    enter = commands.add_parser(
        "login",
        help="run a command as the practice user, from root; it reads nothing from the terminal",
    )
    enter.add_argument("--user", default=users.PRACTICE_USER, help="another one")
    enter.add_argument("--give", action="append", default=[], type=Path, metavar="FOLDER",
                       help="first make it that user's, with all that is in it")  # fmt: skip
    enter.add_argument("--make", action="append", default=[], type=Path, metavar="FOLDER",
                       help="first make it, as root's own, where it is missing")  # fmt: skip
    enter.add_argument("--read", type=Path, metavar="FILE", help="refuse where that user cannot")
    enter.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    stop = commands.add_parser("stop-node", help="stop the slurmd of a node; its jobs go on")
    stop.add_argument("node", choices=NODES)
    stop.add_argument("--power", action="store_true", help="end everything on the node at once")
    commands.add_parser("start-node", help="start it again").add_argument("node", choices=NODES)
    slow = commands.add_parser("limit", help="make the links of a node, or of all, slow")
    slow.add_argument("node", choices=(*NODES, "all"))
    slow.add_argument("rate", help="like 200mbit, or off")
    slow.add_argument("--way", choices=WAYS, default="both", help="what it sends, or receives")
    slow.add_argument("--to", choices=NODES, help="only what it sends to this node")
    slow.add_argument("--rest", help="with --to: rate towards all others (default: no limit)")
    for name in ("stop", "start"):
        commands.add_parser(f"{name}-controller", help=f"{name} slurmctld")
    return made


def main(arguments: Sequence[str]) -> int:
    told = parser().parse_args(arguments)  # a wrong word ends here with exit code 2
    hint = "" if os.geteuid() == 0 else "Only root may change the cluster"
    return guarded(lambda: _do(told, place_of(os.environ)), say, hint)


def _do(told: argparse.Namespace, place: Place) -> int:
    if told.command == "status":
        return status(place)
    if told.command == "up":
        return up(place)
    if os.geteuid() != 0:
        raise SetupError(f"`{told.command}` needs root (found: user id {os.geteuid()})")
    if told.command == "exec":
        run_inside(place, told.space, told.words)
    if told.command == "login":
        for folder in told.make:
            with suppress(OSError):  # where it cannot be made, data are kept elsewhere
                os.close(users.open_folder(folder))
        return login(place, told.user, told.give, told.read, told.words)
    with only_one(place.lock):
        if told.command == "down":
            down = cluster.down(place)
            say(f"ended; {place.folder} is gone, packages, Apptainer and the user practice stay"
                if down else f"no cluster in {place.folder}: nothing to end")  # fmt: skip
        elif told.command == "stop-node":
            cluster.stop_node(place, told.node, power=told.power)
        elif told.command == "start-node":
            cluster.start_node(place, told.node)
        elif told.command == "limit":
            nodes = nodes_named(told.node)
            cluster.limit(place, nodes, told.rate, way=told.way, to=told.to, rest=told.rest)
        elif told.command == "stop-controller":
            cluster.stop_controller(place)
        else:
            cluster.start_controller(place)
    return 0


def up(place: Place) -> int:
    needs.check()
    with only_one(place.lock):
        found = cluster.health(place)
        if found.good:
            say(f"it runs already in {place.folder}")
        else:
            if found.exists:
                say(
                    f"half of a cluster found (missing: {', '.join(found.missing)}): making it anew"
                )
                cluster.down(place)
            start = time.monotonic()
            prepare()
            say("starting Slurm: a controller and 4 nodes")
            shape = cluster.up(place)
            say(
                f"ready after {time.monotonic() - start:.0f} s: node1 to node4 in {shape.subnet}, "
                f"each with 2 CPUs, {shape.nodes[0].memory_mb} MB and 2 pretend GPUs"
            )
    own = "" if place == Place() else ", if a copy of that site file names this slurm_conf"
    say("use it:")
    say(f"  make sweep SWEEP=smoke SITE=practice{own}")
    say(f"  export SLURM_CONF={place.slurm_conf}    # then sinfo, sbatch, srun ... as any user")
    say("  python3 containers/practice exec node2 -- bash    # a root shell in a node")
    say("  make cluster-down    # ends it")
    return 0


def prepare() -> None:
    """Packages, Apptainer and the unprivileged user, each only where it is missing.

    Raises SetupError where one cannot be had.
    """
    missing = needs.missing_packages()
    kept = [f"the package {package}" for package in missing]
    if apptainer.find() is None:
        kept.append("Apptainer")
    if not users.exists(users.PRACTICE_USER):
        kept.append(f"the user {users.PRACTICE_USER}")
    if kept:
        say(f"installing what stays after make cluster-down: {', '.join(kept)}")
    if missing:
        needs.install(missing, table.environment_of("image", os.environ))
        needs.check()  # what could not be tried without them
    users.ensure_user()
    apptainer.ensure()


def login(
    place: Place, user: str, folders: Sequence[Path], file: Path | None, words: Sequence[str]
) -> int:
    """Run the command as the practice user on this machine, the login node; returns its exit code.

    ``folders``: given to that user; ``file``: that the command reads.

    Raises SetupError where that user has no way to them.
    """
    command = command_of(words, "login")
    if not users.exists(user):
        raise SetupError(f"there is no user {user!r}: make cluster makes the practice user")
    for folder in folders:
        users.give(folder, user)
    for path in (*folders, *filter(None, [file])):
        if output(["setsid", *users.enter_argv(["test", "-r", str(path)], user)]) is None:
            raise SetupError(
                f"the user {user}, as whom root's command goes on, cannot read {path}: name a "
                "place that others than root can enter, a site file for instance in jobs/sites"
            )
    return terminal.run(users.enter_argv(command, user), os.environ | slurm_environment(place))


def command_of(words: Sequence[str], before: str) -> list[str]:
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        raise SetupError(f"no command found, expected: {before} -- COMMAND")
    return command


def run_inside(place: Place, space: str, words: Sequence[str]) -> None:
    """Become a command inside a node; does not return."""
    command = command_of(words, f"exec {space}")
    here = Path.cwd()
    if here.is_relative_to("/tmp") and not here.is_relative_to(users.ROOT):  # noqa: S108
        here = Path("/")  # a node has a /tmp of its own
    argv = enter_argv(keeper(place, space), command, str(here))
    os.execvpe(argv[0], argv, os.environ | slurm_environment(place))  # noqa: S606


def status(place: Place) -> int:
    """Print what runs; other users than root see only what Slurm says."""
    found = cluster.health(place) if os.geteuid() == 0 else None
    if found is not None and (not found.exists or found.shape is None):
        print(f"no cluster in {place.folder}" + (" (but parts of one)" if found.exists else ""))
        return 1
    shape, states = cluster.shape_here(place), node_states(place)
    print(f"{place.folder}  {shape.subnet}")
    for node in shape.nodes:
        print(f"{node.name}  {node.address}  {states.get(node.name, 'no answer from Slurm')}")
    if found is not None and found.missing:
        print(f"missing: {', '.join(found.missing)}")
    return 0 if states and (found is None or found.good) else 1
