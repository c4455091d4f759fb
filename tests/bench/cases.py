"""The cases of the bench, and how their contenders are started."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from tests.bench import worlds
from tests.bench.hosts import Link
from tests.bench.suite import Asked
from tests.bench.worlds import Place, World
from tests.pretend_hosts import Host
from tests.sweeps import ROOT


class Contender(NamedTuple):
    """The suite in one of its forms (see suite.py), unless its name is ``plain`` or ``before``."""

    name: str
    form: str = "run"
    apart: bool = False  # ranks at the same time, each in a world of its own
    deterministic: bool = True
    compression: str = "none"
    bucket_mib: int = 0


class Case(NamedTuple):
    name: str
    model: str
    dataset: str
    batch: int  # per rank
    seconds: float  # of a turn
    ranks: int
    contenders: tuple[Contender, ...]  # the others are compared with the first one
    link: Link | None = None  # each rank is a host of its own
    cores: int = 1  # per rank


def forms(*names: str) -> tuple[Contender, ...]:
    return tuple(Contender(name, name) for name in names)


_PLAIN = (Contender("plain"), Contender("suite"), Contender("before"))
_OVERLAP = (Contender("parts", "parts"), Contender("suite"), Contender("before"))
_FREE = (Contender("deterministic"), Contender("free", deterministic=False))
_WORLD = (Contender("apart", apart=True), Contender("world"), Contender("before"))
_BUCKETS = tuple(Contender(f"{mib} MiB", bucket_mib=mib) for mib in (8, 1, 4, 16, 32))
_CNN = ("cnn", "synthetic", 128, 4.0)
_MINI = ("resnet_mini", "synthetic", 256, 5.0)
_DIGITS = ("resnet_mini", "digits", 128, 2.0)
_LARGE = ("resnet50", "synthetic", 64, 15.0)
_SLOW, _SLOW_LARGE = Link("200mbit"), Link("400mbit")
CASES = (
    Case("plain, cnn, 1 rank", *_CNN, 1, _PLAIN),
    Case("plain, cnn", *_CNN, 2, _PLAIN),
    Case("plain, cnn, 200 Mbit/s", *_CNN, 2, _PLAIN, _SLOW),
    Case("plain, cnn, 1 Gbit/s, 1 ms", *_CNN, 2, _PLAIN, Link("1gbit", 1)),
    Case("plain, cnn, 1 Gbit/s, 5 ms", *_CNN, 2, _PLAIN, Link("1gbit", 5)),
    Case("plain, resnet_mini, 1 rank", *_MINI, 1, _PLAIN),
    Case("plain, resnet_mini", *_MINI, 2, _PLAIN),
    Case("plain, digits, 1 rank", *_DIGITS, 1, _PLAIN),
    Case("plain, digits", *_DIGITS, 2, _PLAIN),
    Case("plain, resnet50, 1 rank", *_LARGE, 1, _PLAIN),
    Case("plain, resnet50", *_LARGE, 2, _PLAIN),
    Case("plain, resnet50, 400 Mbit/s", *_LARGE, 2, _PLAIN, _SLOW_LARGE),
    Case("plain, resnet50, 1 Gbit/s, 1 ms", *_LARGE, 2, _PLAIN, Link("1gbit", 1)),
    Case("plain, resnet50, 1 Gbit/s, 5 ms", *_LARGE, 2, _PLAIN, Link("1gbit", 5)),
    Case("overlap, cnn", *_CNN, 2, _OVERLAP, _SLOW),
    Case("overlap, resnet50", *_LARGE, 2, _OVERLAP, _SLOW_LARGE),
    Case("small, 1 rank", "cnn", "digits", 64, 1.0, 1, forms("parts", "1", "16")),
    Case("small, 2 ranks", "cnn", "digits", 64, 1.0, 2, forms("parts", "1", "16")),
    Case("calls of 4, cnn", *_CNN, 2, forms("1", "4"), _SLOW),
    Case("one world, cnn", *_CNN, 2, _WORLD),
    Case("one world, resnet_mini", *_MINI, 2, _WORLD),
    Case("one world, digits", *_DIGITS, 2, _WORLD),
    Case("free operations, cnn", *_CNN, 2, _FREE),
    Case("free operations, resnet_mini", *_MINI, 2, _FREE),
    Case("free operations, resnet_mini, 1 rank on 2 cores", *_MINI, 1, _FREE, cores=2),
    Case("buckets, resnet_mini", *_MINI, 2, _BUCKETS),
    Case("buckets, cnn", *_CNN, 2, _BUCKETS, _SLOW),
    Case("buckets, resnet50", *_LARGE, 2, _BUCKETS, _SLOW_LARGE),
)


def opened(
    case: Case, one: Contender, hosts: Sequence[Host], folder: Path, store: Path, old: Path | None,
    **variables: str,
) -> AbstractContextManager[World]:  # fmt: skip
    """A contender's world. ``folder``: of its own; ``old``: the checkout of ``before``."""
    place = Place(case.ranks, hosts, case.cores, one.apart)
    root = old if one.name == "before" and old else ROOT
    kept = store / root.name  # commits differ in the form of prepared data
    asked = Asked(
        case.model, case.dataset, case.batch, str(kept), one.form, one.deterministic,
        one.compression, one.bucket_mib,
    )  # fmt: skip
    folder.mkdir()
    if one.name == "plain":
        exported = worlds.export(asked, folder / "exported")
        return worlds.plain(exported, case.batch, place, folder, **variables)
    return worlds.suite(asked, place, folder, root, **variables)
