"""`python -m train.distributed.preflight --out DIR --world N`: as every rank of a short
job inside the image, find out whether ranks could train here, and write it to DIR/rank-PROCID.json.

The file is written before each step that may crash or hang, so that it names that step. It ends
by itself, also when the other ranks never come.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from train.distributed.machine.gpus import driver_cuda
from train.distributed.preflight import checks
from train.distributed.preflight.checks import Hopeless, Report
from train.program import open_streams

if TYPE_CHECKING:  # pydantic may be what the image lacks
    from train.distributed.interfaces import Interface
    from train.distributed.launch import Launch

EXIT_FINDINGS = 1
PACKAGES = ("tensorflow", "tensorflow-cpu", "tensorflow-addons", "horovod", "numpy", "pydantic")
#: To meet and add up, where nodes cannot talk over the interface that MPI may take.
SUSPICIOUS_S = 30.0
#: 1 MiB of small whole numbers, whose sum is exact in 32-bit floating point.
WORDS = 2**18


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m train.distributed.preflight", description=__doc__
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the reports")
    parser.add_argument("--world", type=int, required=True, help="ranks that there should be")
    parser.add_argument(
        "--need",
        nargs=3,
        action="append",
        default=[],
        metavar=("WHAT", "USE", "PATH"),
        help="a file or folder that ranks read or write",
    )
    parser.add_argument(
        "--lock",
        nargs=2,
        metavar=("FILE", "MACHINE"),
        help="a lock file, and the machine that holds it while ranks run",
    )
    parser.add_argument("--interface", help="network interface that the ranks are to use")
    parser.add_argument("--gpu", action="store_true", help="each rank is to have a GPU")
    parser.add_argument("--limit-s", type=float, default=120.0, help="seconds after which it ends")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.interface:
        os.environ["HOROSCALE_INTERFACE"] = options.interface
    try:
        report = Report(options.out, options.limit_s)
        report.write()
    except OSError as error:
        print(f"preflight: {socket.gethostname()} cannot write to {options.out}: {error.strerror}")
        return EXIT_FINDINGS
    try:
        _light(report, options)
        report.enter("importing")
        launch = _import(report, options)
        report.enter("meeting the others")
        _meet(report, launch, options.world)
        report.enter("all-reduce")
        _reduce(report)
    except Hopeless:
        pass
    except Exception as error:  # noqa: BLE001  (whatever it is belongs into the report)
        said = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
        fix = "see the job's log for the whole traceback"
        report.add(checks.finding(report.facts["phase"], False, said[:2000], "no error", fix))
    report.enter("done")
    for found in report.bad:
        print(f"preflight: {found['check']}: {found['found']}; {found['fix']}", file=sys.stderr)
    return EXIT_FINDINGS if report.bad else 0


def _light(report: Report, options: argparse.Namespace) -> None:
    report.add(
        checks.check_python(),
        checks.check_pmix(os.environ, options.world),
        checks.check_writable("/tmp", Path("/tmp"), room=checks.ROOM_BYTES),  # noqa: S108
        checks.check_writable("/dev/shm", Path("/dev/shm"), room=checks.ROOM_BYTES),  # noqa: S108
        checks.check_writable("results", options.out),
        *(checks.check_need(what, use, Path(path)) for what, use, path in options.need),
    )
    if options.lock:
        file, holder = options.lock
        found, report.facts["lock"] = checks.check_lock(Path(file), holder)
        report.add(found)


def _import(report: Report, options: argparse.Namespace) -> Launch:
    """The heavy packages, last; before them what they are not needed for."""
    for package in PACKAGES:
        try:
            report.facts["versions"][package] = version(package)
        except PackageNotFoundError:
            continue
    from train.distributed.interfaces import (  # noqa: PLC0415  (the image may lack pydantic)
        own_interface,
    )
    from train.distributed.launch import read_launch  # noqa: PLC0415
    from train.distributed.world import check_size  # noqa: PLC0415

    launch = read_launch(os.environ, supervised=True)
    report.facts["launcher"] = launch.launcher
    try:
        interface = own_interface(os.environ, nodes=launch.nodes)
        report.facts["interface"] = interface.name
        address = f"{interface.name} ({interface.address})"
        report.add(checks.finding("interface", True, address, "one with an IPv4 address", ""))
    except ValueError as error:
        fix = "name one that is there as `interface` of the site file"
        report.add(checks.finding("interface", False, str(error), "one with an address", fix))
    try:
        check_size(options.world, launch.size, launch)
    except RuntimeError as error:
        fix = "start all ranks by one srun, whose variables reach them inside the container"
        report.refuse(checks.finding("world", False, str(error), f"{options.world} ranks", fix))
    report.write()
    suspicious = launch.nodes > 1 and not report.bad and _look_around(
        report, launch, interface, options
    )  # fmt: skip
    _import_frameworks(report, launch, options)
    if report.bad:
        raise Hopeless  # with a wrong interface, say, the others would wait for this one
    if suspicious:  # MPI may go another way, or wait for ever
        report.hurry(SUSPICIOUS_S)
    return launch


def _look_around(
    report: Report, launch: Launch, interface: Interface, options: argparse.Namespace
) -> bool:
    """What the nodes find out about each other; the first node alone reports it, for all. Whether
    there is something that may keep MPI from its work.

    Raises:
        Hopeless: something keeps Gloo from it, which takes this way and no other.
    """
    from train.distributed.preflight import neighbours  # noqa: PLC0415

    report.enter("looking at the other nodes")
    folder = neighbours.meeting_folder(options.out, os.environ)
    patience_s = min(30.0, options.limit_s / 4)
    if launch.local_rank == 0:
        seen = neighbours.look_around(folder, interface, launch.node, launch.nodes, patience_s)
    else:
        seen = neighbours.look_on(folder, launch.nodes, patience_s)
    by_gloo = launch.rendezvous is not None
    found = neighbours.troubles(seen, by_gloo=by_gloo)
    if launch.local_rank == 0 and seen.nodes and launch.node == seen.nodes[0].node:
        ok = False if by_gloo else None
        report.add(*(checks.finding(t.what, ok, t.found, t.expected, t.fix) for t in found))
    if found and by_gloo:
        raise Hopeless
    report.enter("importing")
    return bool(found)


def _import_frameworks(report: Report, launch: Launch, options: argparse.Namespace) -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import horovod.tensorflow as hvd  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415
    import tensorflow_addons  # noqa: F401, PLC0415

    built = {
        name: bool(getattr(hvd, f"{name}_built")())
        for name in ("mpi", "gloo", "nccl", "cuda", "rocm")
    }
    report.facts["built"] = built
    needed = [
        "gloo" if launch.rendezvous or launch.size == 1 else "mpi",
        *(["nccl"] if options.gpu else []),
    ]
    lacking = [name for name in needed if not built[name]]
    report.add(
        checks.finding(
            "Horovod", not lacking, "built with " + ", ".join(n for n, there in built.items()
                                                              if there),
            "built with " + ", ".join(needed), "use the suite's image (make image)",
        )
    )  # fmt: skip
    devices = [
        {"device_name": gpu.name} | tf.config.experimental.get_device_details(gpu)
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    names = [str(device["device_name"]) for device in devices]
    models = {str(device["device_name"]): device["compute_capability"] for device in devices
              if "compute_capability" in device}  # fmt: skip
    report.facts["gpus"] = names
    built_for = tf.sysconfig.get_build_info().get("cuda_version")
    report.add(
        checks.check_gpu(names, launch.local_size, wanted=options.gpu),
        checks.check_cuda(driver_cuda(), built_for, wanted=options.gpu),
        checks.check_gpu_models(models, built_for, wanted=options.gpu),
    )


def _meet(report: Report, launch: Launch, world: int) -> None:
    from train.distributed.machine.libraries import mpi_versions  # noqa: PLC0415
    from train.distributed.world import choose_transport, own_gpus  # noqa: PLC0415

    choose_transport(launch, os.environ)
    import horovod.tensorflow as hvd  # noqa: PLC0415

    hvd.init()
    report.facts["versions"] |= mpi_versions()
    report.facts |= {
        "size": hvd.size(), "rank": hvd.rank(), "local_rank": hvd.local_rank(),
        "cross_rank": hvd.cross_rank(),
    }  # fmt: skip
    found = (hvd.size(), hvd.rank(), hvd.local_rank())
    expected = (world, launch.rank, launch.local_rank)
    report.refuse(
        checks.finding(
            "world", found == expected, "size {}, rank {}, local rank {}".format(*found),
            "size {}, rank {}, local rank {}".format(*expected),
            "srun and MPI disagree: another PMIx than Slurm's in the image, or its variables were "
            "dropped",
        )
    )  # fmt: skip
    own_gpus(hvd.local_rank(), hvd.local_size(), 1)


def _reduce(report: Report) -> None:
    """A sum over all ranks that is exact, or wrong; and the links that carried it."""
    import horovod.tensorflow as hvd  # noqa: PLC0415
    import tensorflow as tf  # noqa: PLC0415

    from train.distributed.interfaces import moved, read_counters  # noqa: PLC0415

    size = hvd.size()
    pattern = tf.cast(tf.range(WORDS) % 7 + 1, tf.float32)
    hvd.allreduce(tf.zeros(1), op=hvd.Sum)
    before, begin = read_counters(), time.perf_counter()
    found = hvd.allreduce(pattern * (hvd.rank() + 1), op=hvd.Sum)
    wrong = int(tf.math.count_nonzero(found - pattern * (size * (size + 1) // 2)))
    seconds = time.perf_counter() - begin
    links = moved(report.facts["host"], before, read_counters())
    report.facts["carried"] = {n.interface: n.received_bytes + n.sent_bytes for n in links}
    report.add(
        checks.finding(
            "all-reduce", wrong == 0, f"{wrong} of {WORDS:,} sums wrong, in {seconds:.3f} s",
            "0 wrong", "a link or memory of these nodes corrupts data: take them out",
        )
    )  # fmt: skip
    hvd.allreduce(tf.zeros(1), op=hvd.Sum)
    hvd.shutdown()


if __name__ == "__main__":
    open_streams()
    sys.exit(main(sys.argv[1:]))
