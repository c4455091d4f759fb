"""`python -m train.interconnect.facts --out DIR --when before`: as one task per node, write what
this node says of itself to DIR/facts-NODE-before.json. It needs no container and loads nothing
heavy.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import get_args

from train.distributed.interfaces import NAME, Interface, own_interface
from train.distributed.launch import read_launch
from train.distributed.preflight.neighbours import look_around, meeting_folder, troubles
from train.errors import ConfigError
from train.interconnect.facts.gpu import gpu
from train.interconnect.facts.identity import identity
from train.interconnect.facts.infiniband import infiniband
from train.interconnect.facts.network import network
from train.interconnect.facts.probe import Answer, fact
from train.interconnect.facts.processor import processor
from train.interconnect.facts.record import Fact, NetworkFault, NodeFacts, When, file_name
from train.interconnect.facts.software import software
from train.program.command_line import open_streams
from train.record.atomic import write_atomically

#: To wait for the other nodes, which srun starts at the same time.
PATIENCE_S = 10.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m train.interconnect.facts", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the run, on all nodes")
    parser.add_argument("--when", choices=get_args(When), required=True)
    parser.add_argument("--interface", help="network interface that is measured")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.interface:
        os.environ[NAME] = options.interface
    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    interface: str | None = None
    why = ""
    faults: tuple[NetworkFault, ...] = ()
    try:
        chosen = own_interface(os.environ, nodes=2)
        interface = chosen.name
        if options.when == "before":
            faults = _faults(options.out, chosen)
    except ConfigError as error:
        why = str(error)
    told = NodeFacts(
        node=node,
        when=options.when,
        taken_at=datetime.now(timezone.utc),
        interface=interface,
        facts=tuple(_all(interface, why)),
        faults=faults,
    )
    try:
        write_atomically(
            options.out / file_name(node, options.when), told.model_dump_json(indent=1) + "\n"
        )
    except OSError as error:
        print(f"facts: {node} cannot write to {options.out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


def _faults(folder: Path, interface: Interface) -> tuple[NetworkFault, ...]:
    """Those that the nodes find together; of the first one only, which also says them at once."""
    try:
        launch = read_launch(os.environ, supervised=True)
        if launch.nodes == 1 or launch.local_rank:
            return ()
        meeting = meeting_folder(folder, os.environ)
        seen = look_around(meeting, interface, launch.node, launch.nodes, PATIENCE_S)
    except (ConfigError, OSError) as error:
        print(f"facts: {socket.gethostname()} cannot look at the other nodes: {error}",
              file=sys.stderr)  # fmt: skip
        return ()
    if not seen.nodes or seen.nodes[0].node != launch.node:
        return ()
    found = troubles(seen, by_gloo=False)
    for one in found:
        print(f"facts: {one.what}: {one.found}; {one.fix}", file=sys.stderr)
    return tuple(NetworkFault(what=t.what, nodes=t.hosts, found=t.found, fix=t.fix) for t in found)


def _all(interface: str | None, why: str) -> chain[Fact]:
    measured = [fact("network", "interface", Answer(interface, why or None))]
    return chain(
        identity(os.environ),
        measured,
        network(interface) if interface else (),
        infiniband(),
        processor(),
        gpu(),
        software(os.environ),
    )


if __name__ == "__main__":
    open_streams()
    sys.exit(main(sys.argv[1:]))
