"""`python -m train CONFIG`: one rank of one cell, under any launcher. `python -m train check
NETWORK` looks at a network first."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from train.config.networks import model_file
from train.config.run import RunConfig, load_config
from train.distributed.launch import Launch, Task, read_launch
from train.distributed.watchdog import STALL_S, Watchdog
from train.errors import ConfigError, RecordError, Unfinished, WorldError, remedy
from train.program.command_line import (
    DEFAULT_DATA,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_REQUEST,
    open_streams,
    place,
    positive,
)
from train.record.cell_folder import (
    EXIT_UNFINISHED,
    forget_earlier,
    rank_file,
    read_epochs,
    refuse_other_config,
)
from train.record.lock import hold, holder
from train.record.measurements import EpochRecord
from train.record.run import GOOD, RECORD_NAME, OtherCell
from train.record.summary import RecordSummary, read_own_summary
from train.run.failure import headline, write_error_file


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m train", description=__doc__)
    add = parser.add_argument
    add("config", type=place, metavar="CONFIG", help="config.json of a cell")
    add("--out", type=place, help="folder for the record and the logs (default: the config's)")
    add("--data", type=place, default=os.environ.get("DATA") or str(DEFAULT_DATA),
        help="folder with the data sets (default: $DATA)")  # fmt: skip
    add("--store", type=place, help="folder of prepared data (default: prepared/ in --data)")
    add("--model-file", type=place, help="file of the network (default: the copy of its sweep)")
    add("--resume", action="store_true", help="go on from the checkpoint there")
    add("--force", action="store_true", help="replace a good record")
    add("--attempt", type=positive(int),
        help="which start of this cell it is (default: one more than its record has)")  # fmt: skip
    add("--stall-s", type=positive(float), default=STALL_S,
        help="seconds without progress that end the rank; late ranks get longer")  # fmt: skip
    add("--stop-at", type=positive(float), metavar="UNIX_SECONDS",
        help="stop at the last epoch end that leaves time to be gone by then, with exit code "
        f"{EXIT_UNFINISHED}; --resume goes on")  # fmt: skip
    add("--supervised", action="store_true",
        help="a supervisor, perhaps on another host, keeps the record")  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["check"]:
        from train.run.check import main as check  # noqa: PLC0415  (runs need less)

        return check(arguments[1:])
    options = parse(arguments)
    out = options.out or options.config.resolve().parent
    with ExitStack() as stack:
        try:
            config = load_config(options.config)
            network = model_file(config.model, out, options.config.resolve().parent)
            launch = read_launch(os.environ, supervised=options.supervised)
            by_hand = not launch.supervised
            again = options.resume or options.force  # a person knows that the last start is over
            (out / "logs").mkdir(parents=True, exist_ok=True)
            if by_hand and launch.rank == 0 and not stack.enter_context(hold(out, by_hand=again)):
                raise ConfigError(
                    f"{holder(out) or 'another process'} runs the cell in {out}: wait, stop it, or "
                    "name another folder with --out"
                )
            earlier = _earlier(config, out, force=options.force)
            if not options.force and earlier is not None and earlier.status in GOOD:
                if launch.rank == 0:
                    print(f"{out / RECORD_NAME} is good already; --force or --out trains again")
                return 0
            trained = read_epochs(out) if options.resume else ()
            attempt = options.attempt or start_number(earlier, trained)
            if by_hand and launch.rank == 0:
                forget_earlier(out, resume=options.resume)
        except (ConfigError, OSError) as error:
            todo = remedy(error) if isinstance(error, OSError) else ""
            print(f"train: {error}" + (f": {todo}" if todo else ""), file=sys.stderr)
            return EXIT_REQUEST
        task = Task(
            out, options.data, options.store, options.model_file or network, attempt,
            tuple(one for one in earlier.attempts if one.number < attempt) if earlier else (),
            resume=options.resume, force=options.force, stop_at=options.stop_at,
        )  # fmt: skip
        return _run(config, launch, task, options.stall_s)


def start_number(earlier: RecordSummary | None, trained: tuple[EpochRecord, ...]) -> int:
    """One more than the earlier record or the epochs to go on from count; a good record, which is
    to be replaced, counts for nothing."""
    if earlier is not None and earlier.status in GOOD:
        return 1
    counted = len(earlier.attempts) if earlier else 0
    return 1 + max([counted, *(epoch.attempt for epoch in trained)])


def _earlier(config: RunConfig, out: Path, *, force: bool) -> RecordSummary | None:
    """``force`` alone lets a record or config.json of another config be replaced."""
    with suppress(RecordError, *((OtherCell,) if force else ())):
        refuse_other_config(out, config)
        return read_own_summary(out, config)
    return None


def _run(config: RunConfig, launch: Launch, task: Task, stall_s: float) -> int:
    """Train under the watchdog; every way to fail leaves this rank's error in a file, once the
    folder is its own: by hand it may write there when it has met rank 0, which has the lock."""
    own = launch.supervised or launch.rank == 0
    beats = rank_file(task.out, launch.rank, "beat") if own else None

    def failed(what: str, tail: str = "") -> None:
        if watchdog.file:
            write_error_file(what, launch, task.out, tail)

    watchdog = Watchdog(beats, stall_s, launch.supervisor, failed)
    try:
        with watchdog:
            # here, so that a broken installation leaves its error, too
            from train.run.session import run_session  # noqa: PLC0415

            run_session(config, launch, task, watchdog)
        return 0
    except (ConfigError, WorldError) as error:
        failed(str(error))
        print(f"train: {error}", file=sys.stderr)
        return EXIT_REQUEST
    except Unfinished as stopped:
        if launch.rank == 0:
            print(f"train: {stopped}; --resume goes on", file=sys.stderr)
        return EXIT_UNFINISHED
    except KeyboardInterrupt:
        failed("interrupted by Ctrl-C")
        print("train: interrupted; --resume goes on from the last checkpoint", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the last place that can leave it in a file)
        failed(headline(error), traceback.format_exc())
        traceback.print_exc()
        return EXIT_FAILED


if __name__ == "__main__":
    open_streams()
    sys.exit(main(sys.argv[1:]))
