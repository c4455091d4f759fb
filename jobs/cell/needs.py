"""What a cell needs on its node, besides the image: one list, made where the sweep is planned.

A plan refuses what is missing, a container gets all of it, and the preflight looks at each on the
nodes. Below one of a site's own binds, absence on this machine proves nothing, since nodes alone
may see what is there: the preflight decides.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from jobs.cell.container import NO_IMAGE, check_path
from jobs.config.sweep import Sweep
from train.config.datasets import ARRAYS_PREFIX, FOLDER_PREFIX, place_of
from train.config.frozen import Frozen
from train.config.networks import MODELS, split_hash
from train.errors import ConfigError

#: A bind of one of these would hide the image's own programs.
_OF_THE_IMAGE = frozenset(
    Path("/", name)
    for name in ("", "bin", "dev", "etc", "lib", "lib64", "opt", "proc", "sbin", "sys", "usr")
)
#: Containers have it without a bind, and at some sites each job has its own.
TMP = "/tmp"  # noqa: S108
_MOST_LINKS = 40  # one after another, as the kernel follows them


class Need(Frozen):
    """A file or folder that ranks open, under a name that they may meet it by."""

    what: str
    path: str  # absolute
    use: Literal["read", "write"] = "read"
    bound: bool = True  # by us: else the site's own binds bring it, or the container itself
    link: bool = False  # a symbolic link is on the way; where that leads is a need before this one


def needs_of(
    wanted: Sweep, *, results: Path, data: Path, store: Path, binds: Sequence[str] = ()
) -> tuple[Need, ...]:
    """What all cells of a sweep share, as this machine shows it.

    Args:
        results: folder of the sweep's results.
        data: folder of the data sets.
        store: folder of their prepared forms.
        binds: the site's own, as its file has them.

    Raises:
        ConfigError: a folder of images or a file of weights is missing or cannot be read here.
    """
    places: list[tuple[str, Path]] = [("the data folder", data), ("the data store", store)]
    for sha256 in wanted.networks:
        places.append(("the copy of the network's file", results / MODELS / f"{sha256}.py"))
    for name in dict.fromkeys(config.dataset for config in wanted.configs):
        if name.startswith(FOLDER_PREFIX):
            place = place_of(name.removeprefix(FOLDER_PREFIX), data)
            _look(place, "dataset", name, wanted, binds)
            places.append(("the data set", place))
        if name.startswith(ARRAYS_PREFIX):  # which was read for its hash
            file, _ = split_hash(name.removeprefix(ARRAYS_PREFIX))
            places.append(("the data set", place_of(file, data)))
        linked = (link for folder in (data, store) for link in _links_out_of(folder, name))
        places += [("the data set", link) for link in linked]
    for name in dict.fromkeys(c.pretrained for c in wanted.configs if c.pretrained is not None):
        place = place_of(split_hash(name)[0], data)
        _look(place, "pretrained", name, wanted, binds)
        places.append(("the pretrained weights", place))
    found = [*_needs("the results folder", results, binds, "write")]
    found += [need for what, place in places for need in _needs(what, place, binds)]
    return tuple({need.path: need for need in reversed(found)}.values())[::-1]


def basic_needs(code: str, image: str, scratch: str | None = None) -> tuple[Need, ...]:
    """What every job needs, whatever it does: its code, and a folder for temporary files."""
    found = [Need(what="the code", path=code)]
    if image == NO_IMAGE:
        found.append(Need(what="the Python environment", path=sys.prefix))
        if not Path(sys.base_prefix).is_relative_to("/usr"):  # a module's, or one that was fetched
            found.append(Need(what="Python", path=sys.base_prefix))
    if scratch is not None:
        bound = not Path(scratch).is_relative_to(TMP)
        found.append(Need(what="scratch (TMPDIR)", path=scratch, use="write", bound=bound))
    return tuple(found)


def usable_tmpdir(given: str | None) -> str | None:
    """``given``: TMPDIR of a shell or job, None: unset. Where it is no folder that can be written
    here, or that a container cannot be given, /tmp: the one of a login node need not be on a node.
    """
    if not given:
        return None
    with suppress(ConfigError):
        check_path(Path(given), "TMPDIR")
        if Path(given).is_absolute() and os.access(given, os.W_OK | os.X_OK):
            return given
    return TMP


def binds_of(needs: Iterable[Need]) -> tuple[str, ...]:
    """Paths to bind, each under its own name: what is inside another one comes with it.

    Links come last. Where a link is seen inside anyway, as in a home folder, a bind to it goes to
    its target, which has to be there.
    """
    bound = [need for need in needs if need.bound]
    real = dict.fromkeys(need.path for need in bound if not need.link)
    most = [path for path in real if not any(_is_inside(path, other) for other in real)]
    links = dict.fromkeys(need.path for need in bound if need.link)
    return *most, *(link for link in links if not any(_is_inside(link, other) for other in most))


def check_names(needs: Iterable[Need], image: str) -> None:
    """
    Raises:
        ConfigError: a path that a batch script or a container cannot name, or whose bind would hide
            the image's own programs.
    """
    for need in needs:
        path = Path(need.path)
        check_path(path, need.what)
        if image != NO_IMAGE and need.bound and path in _OF_THE_IMAGE:
            raise ConfigError(
                f"{need.what}: {path} found, expected a folder that no image has: ranks would see "
                "it in place of the image's own. Name a folder below it"
            )


def need_lines(needs: Iterable[Need]) -> list[str]:
    """For a plan."""
    lines = ["each node needs (the preflight looks there):"]
    for need in needs:
        absent = "" if _is(Path(need.path).exists) else ", not on this machine now"
        lines.append(f"    {need.path} ({need.what}, to {need.use}{absent})")
    return lines


def _needs(
    what: str, place: Path, binds: Sequence[str], use: Literal["read", "write"] = "read"
) -> Iterator[Need]:
    """The place under each name that it has, its own last."""
    *links, real = _names_of(place)
    for path in (real, *reversed(links)):
        bound = not _is_bound(path, binds)
        yield Need(what=what, path=path, use=use, bound=bound, link=path != real)


def _names_of(place: Path) -> list[str]:
    """The path, what each symbolic link on its way makes of it, and last the path without any."""
    names, real = [os.path.normpath(place)], os.path.realpath(place)
    while names[-1] != real and len(names) < _MOST_LINKS:
        path = Path(names[-1])
        link = next((p for p in (*reversed(path.parents), path) if _is(p.is_symlink)), path)
        if _is(link.is_symlink):
            names.append(os.path.normpath(link.parent / link.readlink() / path.relative_to(link)))
        else:
            names.append(real)
    # the folder of a link may be a link itself, and .. then leads elsewhere
    there = (name for name in names if name != real and os.path.realpath(name) == real)
    return [*dict.fromkeys(there), real]


def _links_out_of(folder: Path, dataset: str) -> Iterator[Path]:
    """Symbolic links of a data set's own files and folders that lead out of the folder."""
    kind, _, place = split_hash(dataset)[0].partition(":")
    wanted = _squeezed(kind + Path(place).stem)
    top = os.path.realpath(folder)

    def walk(place: Path, levels: int) -> Iterator[Path]:
        entries: list[Path] = []
        with suppress(OSError):  # not there, or not ours to list
            entries = sorted(place.iterdir())
        for entry in entries:
            if place == folder and not _squeezed(entry.name).startswith(wanted):
                continue
            if _is(entry.is_symlink):
                if _is(entry.exists) and not _is_inside(os.path.realpath(entry), top):
                    yield entry
            elif levels and _is(entry.is_dir):
                yield from walk(entry, levels - 1)

    yield from walk(folder, 2)


def _squeezed(name: str) -> str:
    """CIFAR-10-images and cifar10 begin alike."""
    return re.sub("[^a-z0-9]", "", name.lower())


def _look(place: Path, key: str, name: str, wanted: Sweep, binds: Sequence[str]) -> None:
    """
    Raises:
        ConfigError: it is no folder (data set) or file (weights) that can be read here.
    """
    try:
        os.close(os.open(place, os.O_RDONLY | (os.O_DIRECTORY if key == "dataset" else 0)))
        why = "" if key == "dataset" or place.is_file() else "no file"
    except OSError as error:
        why = error.strerror or str(error)
    if not why or _is_bound(os.path.normpath(place), binds):
        return
    expected = "a folder of images" if key == "dataset" else "a file of weights"
    here = Path(name.removeprefix(FOLDER_PREFIX)).absolute()
    hint = f"; there is a {here}: write its whole path" if here.exists() and here != place else ""
    raise wanted.error(
        name,
        f"{key}: {place} found unreadable ({why}), expected {expected}. A relative path begins in "
        f"the data folder, DATA=DIR{hint}. What nodes alone can see has to be below one of the "
        "binds of the site file",
    )


def _is_bound(path: str, binds: Sequence[str]) -> bool:
    """Whether a site's own binds (SRC[:DEST[:OPTIONS]]) bring it."""
    inside = [next(filter(None, reversed(bind.split(":")[:2]))) for bind in binds]
    return any(path == folder.rstrip("/") or _is_inside(path, folder) for folder in inside)


def _is(look: Callable[[], bool]) -> bool:
    """False also in a folder that this user may not search, where Path's own methods raise."""
    with suppress(OSError):
        return look()
    return False


def _is_inside(path: str, other: str) -> bool:
    return path != other and Path(path).is_relative_to(other)
