"""The command line of the practice cluster."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import apptainer
import users
from locks import SetupError, environment_of_train, refusal

from . import cluster, needs
from .daemons import node_states, slurm_environment
from .network import WAYS, nodes_named
from .place import NODES, SPACES, Place, place_of

REQUEST_IS_WRONG = 2


def say(text: str) -> None:
    print(f"[cluster] {text}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python3 containers/practice",
        description="A real Slurm with four nodes on this machine (see docs/practice-cluster.md). "
        "ACCOUNTING=1 starts it with slurmdbd; HOROSCALE_PRACTICE=DIR names another one.",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="start it; nothing happens where it runs")
    commands.add_parser("down", help="end it and remove its files")
    commands.add_parser("status", help="what runs of it; exit code 1 where something is missing")
    run = commands.add_parser("exec", help="run a command as root in a node or the controller")
    run.add_argument("space", choices=SPACES)
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    enter = commands.add_parser("login", help="run a command as the practice user, from root")
    enter.add_argument("--user", default=users.PRACTICE_USER, help="another one")
    enter.add_argument("--give", action="append", default=[], type=Path, metavar="FOLDER",
                       help="first make it that user's, with all that is in it")  # fmt: skip
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
    for name in ("stop", "start", "restart"):
        commands.add_parser(f"{name}-controller", help=f"{name} slurmctld")
    return made


def main(arguments: Sequence[str]) -> int:
    told = parser().parse_args(arguments)  # a wrong word ends here with exit code 2
    try:
        place = place_of(os.environ)
        return _do(told, place)
    except SetupError as error:
        say(str(error))
        return REQUEST_IS_WRONG
    except OSError as error:
        say(refusal(error) if os.geteuid() == 0 else f"{error}. Only root may change the cluster")
        return REQUEST_IS_WRONG
    except KeyboardInterrupt:
        say("interrupted")
        return 130


def _do(told: argparse.Namespace, place: Place) -> int:
    if told.command == "status":
        return status(place)
    if told.command == "up":
        return up(place, accounting=wants_accounting(os.environ.get("ACCOUNTING", "0")))
    if os.geteuid() != 0:
        raise SetupError(f"`{told.command}` needs root (found: user id {os.geteuid()})")
    if told.command == "exec":
        run_inside(place, told.space, told.words)
    if told.command == "login":
        login(place, told.user, told.give, told.words)
    with cluster.only_one(place):
        if told.command == "down":
            say(f"ended; {place.folder} is gone, packages, Apptainer and the user practice stay"
                if cluster.down(place) else f"no cluster in {place.folder}: nothing to end"
                )  # fmt: skip
            return 0
        changes: dict[str, Callable[[], None]] = {
            "stop-node": lambda: cluster.stop_node(place, told.node, power=told.power),
            "start-node": lambda: cluster.start_node(place, told.node),
            "limit": lambda: cluster.limit(
                place, nodes_named(told.node), told.rate, way=told.way, to=told.to, rest=told.rest
            ),
            "stop-controller": lambda: cluster.stop_controller(place),
            "start-controller": lambda: cluster.start_controller(place),
            "restart-controller": lambda: cluster.restart_controller(place),
        }
        changes[told.command]()
    return 0


def wants_accounting(told: str) -> bool:
    """Raises: SetupError: neither 0 nor 1."""
    if told not in ("0", "1", ""):
        raise SetupError(
            f"ACCOUNTING={told} found, expected ACCOUNTING=1 (a site with accounting) or "
            "ACCOUNTING=0 (one without)"
        )
    return told == "1"


def up(place: Place, *, accounting: bool) -> int:
    needs.check()
    with cluster.only_one(place):
        found = cluster.health(place)
        if found.good and found.shape is not None:
            if found.shape.accounting != accounting:
                has, wanted = ("with", "without") if not accounting else ("without", "with")
                raise SetupError(
                    f"the cluster runs {has} accounting, and {wanted} is asked for: first "
                    "make cluster-down"
                )
            say(f"it runs already in {place.folder}")
            how_to_use(place)
            return 0
        if found.exists:
            say(f"half of a cluster found (missing: {', '.join(found.missing)}): making it anew")
            cluster.down(place)
        start = time.monotonic()
        prepare(accounting=accounting)
        say("starting Slurm: a controller and 4 nodes")
        shape = cluster.up(place, accounting=accounting)
        first = shape.nodes[0]
        say(
            f"ready after {time.monotonic() - start:.0f} s: node1 to node4 in {shape.subnet}, each "
            f"with 2 CPUs, {first.memory_mb} MB and 2 pretend GPUs; "
            f"{'with' if accounting else 'without'} accounting"
        )
        how_to_use(place)
    return 0


def prepare(*, accounting: bool) -> None:
    """Packages, Apptainer and the unprivileged user, each only where it is missing.

    Raises:
        SetupError: one cannot be had.
    """
    missing = needs.missing_packages(accounting=accounting)
    kept = [f"the package {package}" for package in missing]
    if apptainer.find() is None:
        kept.append("Apptainer")
    if not users.exists(users.PRACTICE_USER):
        kept.append(f"the user {users.PRACTICE_USER}")
    if kept:
        say(f"installing what stays after make cluster-down: {', '.join(kept)}")
    if missing:
        needs.install(missing, environment_of_train().environment_of("image", os.environ))
        needs.check()  # what could not be tried without them
    users.ensure_user()
    apptainer.ensure()


def how_to_use(place: Place) -> None:
    say("use it:")
    say("  make sweep SWEEP=smoke SITE=practice")
    say(f"  export SLURM_CONF={place.slurm_conf}    # then sinfo, sbatch, srun ... as any user")
    say("  python3 containers/practice exec node2 -- bash    # a root shell in a node")
    say("  make cluster-down    # ends it")


def login(place: Place, user: str, folders: Sequence[Path], words: Sequence[str]) -> None:
    """Become the command, as the practice user on this machine, the login node; does not return."""
    command = command_of(words, "login")
    if not users.exists(user):
        raise SetupError(f"there is no user {user!r}: make cluster makes the practice user")
    for folder in folders:
        users.give(folder, user)
    argv = users.enter_argv(command, user)
    os.execvpe(argv[0], argv, os.environ | slurm_environment(place))  # noqa: S606


def command_of(words: Sequence[str], before: str) -> list[str]:
    """Raises: SetupError: there is none."""
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
    argv = cluster.inside_argv(place, space, command, str(here))
    os.execvpe(argv[0], argv, os.environ | slurm_environment(place))  # noqa: S606


def status(place: Place) -> int:
    if os.geteuid() != 0:  # other users' processes cannot be looked at: only what Slurm says
        shape = cluster.shape_here(place)
        states = node_states(place)
        for node in shape.nodes:
            print(f"{node.name}  {node.address}  {states.get(node.name, 'no answer from Slurm')}")
        return 0 if states else 1
    found = cluster.health(place)
    if not found.exists or found.shape is None:
        print(f"no cluster in {place.folder}" + (" (but parts of one)" if found.exists else ""))
        return 1
    states = node_states(place)
    accounting = "on" if found.shape.accounting else "off"
    print(f"{place.folder}  {found.shape.subnet}  accounting {accounting}")
    for node in found.shape.nodes:
        print(f"{node.name}  {node.address}  {states.get(node.name, 'no answer from Slurm')}")
    if found.missing:
        print(f"missing: {', '.join(found.missing)}")
    return 0 if found.good else 1
