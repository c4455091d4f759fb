"""`python -m train.interconnect --out DIR`: as one task per node of a job, measure the network
between the nodes, every ordered pair, and write DIR/tournament.json.

Needs neither TensorFlow nor Horovod. Exit codes: 0 measured; 2 the request or the surroundings are
wrong; 3 too few nodes came; 4 this node did not find the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from train.distributed.interfaces import NAME, Interface, own_interface
from train.distributed.launch import read_launch
from train.errors import ConfigError
from train.interconnect.measure.agent import run_agent
from train.interconnect.measure.coordinator import Coordinator
from train.interconnect.measure.meeting import (
    Meeting,
    MeetingError,
    allow_connections,
    join,
    look_up,
    publish,
)
from train.interconnect.measure.stream import Plan
from train.interconnect.record import (
    EXIT_NOT_MET,
    EXIT_TOO_FEW,
    EXIT_WRONG,
    SWITCHES_NAME,
    TOURNAMENT_NAME,
    Tournament,
)
from train.interconnect.tournament import play
from train.program.command_line import open_streams
from train.record.atomic import write_atomically

_USUAL = Plan()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m train.interconnect", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run, on all nodes")
    parser.add_argument("--interface", help="network interface to measure")
    parser.add_argument(
        "--samples", type=int, default=_USUAL.samples, help="per pair and direction"
    )
    parser.add_argument("--sample-s", type=float, default=_USUAL.sample_s, help="seconds of each")
    parser.add_argument("--seed", type=int, default=0, help="of the partners, for many nodes")
    parser.add_argument("--limit-s", type=float, help="of the tournament; shorter: fewer partners")
    parser.add_argument("--patience-s", type=float, default=60.0, help="to wait for all nodes")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.interface:
        os.environ[NAME] = options.interface
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    try:
        allow_connections()
        launch = read_launch(os.environ, supervised=True)
        interface = own_interface(os.environ, nodes=launch.nodes)
        codes: list[int] = []
        serving = None
        if launch.rank == 0:
            serving = threading.Thread(
                target=lambda: codes.append(_serve(options, interface, launch.size)), daemon=True
            )
            serving.start()
        meeting = look_up(options.out, options.patience_s)
        served = run_agent(join(meeting, interface.address), name, interface, meeting.token)
        if serving is not None:
            serving.join()
            return codes[0] if codes else EXIT_WRONG  # its own words are in the log
        if not served:
            raise MeetingError("the coordinator closed the connection before it was done")
        return 0
    except (ConfigError, MeetingError, OSError) as error:
        print(f"interconnect: {name}: {error}", file=sys.stderr)
        return EXIT_NOT_MET if isinstance(error, MeetingError) else EXIT_WRONG


def _serve(options: argparse.Namespace, interface: Interface, world: int) -> int:
    return asyncio.run(_coordinate(options, interface, world))


def _write(folder: Path, found: Tournament) -> None:
    write_atomically(folder / TOURNAMENT_NAME, found.model_dump_json(indent=1) + "\n")


def _switches(folder: Path) -> dict[str, str]:
    """
    Raises:
        ConfigError: the file is there and broken.
    """
    file = folder / SWITCHES_NAME
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return {str(node): str(switch) for node, switch in found.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{file}: expected an object of nodes and switches: {error}") from error


async def _coordinate(options: argparse.Namespace, interface: Interface, world: int) -> int:
    token = secrets.token_hex(16)
    coordinator = Coordinator(token)
    port = await coordinator.serve(interface.address)
    publish(options.out, Meeting(interface.address, port, token))
    try:
        await coordinator.gather(world, options.patience_s)
        if len(coordinator.nodes) < 2:
            print(f"interconnect: {len(coordinator.nodes)} of {world} nodes came, expected two or "
                  "more: a network of one cannot be measured", file=sys.stderr)  # fmt: skip
            return EXIT_TOO_FEW
        plan = Plan(samples=options.samples, sample_s=options.sample_s)
        switches, clocks = _switches(options.out), await coordinator.clocks()

        def keep(so_far: Tournament) -> None:
            _write(options.out, so_far.model_copy(update={"clocks": clocks}))

        keep(await play(
            coordinator, plan, options.seed, lambda text: print(text, flush=True), switches,
            options.limit_s, keep,
        ))  # fmt: skip
        return 0
    finally:
        await coordinator.end()


if __name__ == "__main__":
    open_streams()
    sys.exit(main(sys.argv[1:]))
