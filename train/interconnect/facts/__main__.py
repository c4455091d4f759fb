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

from train.distributed.interfaces import NAME, own_interface
from train.errors import ConfigError
from train.interconnect.facts.gpu import gpu
from train.interconnect.facts.identity import identity
from train.interconnect.facts.infiniband import infiniband
from train.interconnect.facts.network import network
from train.interconnect.facts.probe import Answer, fact
from train.interconnect.facts.processor import processor
from train.interconnect.facts.record import Fact, NodeFacts, When, file_name
from train.interconnect.facts.software import software
from train.record.atomic import write_atomically


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
    try:
        interface = own_interface(os.environ, nodes=2).name
    except ConfigError as error:
        why = str(error)
    told = NodeFacts(
        node=node,
        when=options.when,
        taken_at=datetime.now(timezone.utc),
        interface=interface,
        facts=tuple(_all(interface, why)),
    )
    try:
        write_atomically(
            options.out / file_name(node, options.when), told.model_dump_json(indent=1) + "\n"
        )
    except OSError as error:
        print(f"facts: {node} cannot write to {options.out}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


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
    sys.exit(main(sys.argv[1:]))
