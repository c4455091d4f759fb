"""python -m train.data: prepare a data set before jobs need it, and say what is in it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from train.data.registry import facts
from train.data.waiting import say
from train.errors import ConfigError, interrupt_on_signals
from train.program import place, run

_DEFAULT_ROOT = Path(__file__).resolve().parent.parent.parent / ".data"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m train.data", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("prepare", "find or download the raw files, and make the form that ranks load"),
        ("facts", "counts and shape as one JSON line; prepares the data set if need be"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("dataset", help="e.g. digits, cifar10, folder:PATH")
        command.add_argument(
            "--root", type=place, help="folder with the data sets (default: $DATA, else .data)"
        )
        command.add_argument(
            "--store", type=place, help="folder for prepared forms (default: ROOT/prepared)"
        )
        command.add_argument(
            "--image-size", type=int, help="side in pixels; folders only (default: 64)"
        )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 well, 2 the request or the data are wrong, 130 interrupted."""
    options = _parser().parse_args(arguments)
    interrupt_on_signals()
    # a batch system ends a job so: leave by an exception, which removes half-built folders
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        root = options.root or place(os.environ.get("DATA") or _DEFAULT_ROOT)
        # both commands prepare and tell; which name one uses says what one wants of it
        found = facts(options.dataset, options.image_size, root, options.store)
        print(json.dumps(asdict(found)))
    except ConfigError as error:
        say(str(error))
        return 2
    except KeyboardInterrupt:
        say("interrupted; nothing half-made was left")
        return 130
    return 0


if __name__ == "__main__":
    run(main)
