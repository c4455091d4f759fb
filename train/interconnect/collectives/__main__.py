"""`python -m train.interconnect.collectives --out DIR`: as every rank of a world, time the
collectives that training uses, by Horovod and by plain sockets, and write DIR/collectives.json.

Exit codes: 0 measured; 1 a collective failed; 2 the request or the surroundings are wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from train.distributed.interfaces import NAME, own_interface
from train.distributed.launch import read_launch
from train.distributed.machine.cores import take_cores
from train.distributed.rendezvous import RendezvousError
from train.distributed.world import choose_transport
from train.errors import ConfigError, WorldError
from train.interconnect.collectives.measure import Budget
from train.interconnect.collectives.record import COLLECTIVES_NAME, Collectives
from train.interconnect.measure.meeting import allow_connections
from train.program import open_streams
from train.record.atomic import write_atomically

EXIT_FAILED, EXIT_WRONG = 1, 2
_USUAL = Budget()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m train.interconnect.collectives", description=__doc__
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the run, on all nodes")
    parser.add_argument("--interface", help="network interface of the plain sockets")
    parser.add_argument("--largest", type=int, default=64 * 2**20, help="bytes; default 64 MiB")
    parser.add_argument("--target-s", type=float, default=_USUAL.target_s, help="of a size's calls")
    parser.add_argument(
        "--cap-s", type=float, default=_USUAL.cap_s, help="a size that takes longer ends a series"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.interface:
        os.environ[NAME] = options.interface
    try:
        allow_connections()
        launch = read_launch(os.environ, supervised=True)
        if launch.size < 2:
            raise ConfigError(
                f"found a world of {launch.size} rank, expected two or more: a collective of one "
                "moves nothing"
            )
        if launch.size != launch.nodes * launch.local_size:
            raise ConfigError(
                f"found {launch.size} ranks on {launch.nodes} nodes, {launch.local_size} on this "
                "one: expected equally many on each; start it with srun --ntasks-per-node"
            )
        interface = own_interface(os.environ, nodes=launch.nodes)
        claims = take_cores(launch)
        choose_transport(launch, os.environ)
    except (ConfigError, RendezvousError, WorldError, OSError) as error:
        print(f"collectives: {error}", file=sys.stderr)
        return EXIT_WRONG
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from train.interconnect.collectives.run import run  # noqa: PLC0415  (loads TensorFlow)

    def keep(so_far: Collectives) -> None:
        write_atomically(options.out / COLLECTIVES_NAME, so_far.model_dump_json(indent=1) + "\n")

    budget = Budget(target_s=options.target_s, cap_s=options.cap_s)
    try:
        found = run(interface, options.largest, budget, launch, claims, keep)
    except (OSError, RuntimeError) as error:  # Horovod's own are RuntimeErrors
        print(f"collectives: rank {launch.rank}: {error}", file=sys.stderr)
        return EXIT_FAILED
    return EXIT_FAILED if any(series.error for series in found.series) else 0


if __name__ == "__main__":
    open_streams()
    sys.exit(main(sys.argv[1:]))
