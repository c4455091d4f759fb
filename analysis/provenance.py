"""Where the numbers come from: machines, code, versions; and when one table mixes several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from train.record.run import RunRecord

#: field of Provenance -> its name in the report
_CODE = {"git_commit": "git commit", "git_dirty": "uncommitted changes", "image_digest": "image"}
_MACHINE = {"cpu": "CPU", "gpu": "GPU", "driver": "GPU driver"}
UNKNOWN = "not recorded"
#: More cells than this are not named.
_NAMED = 4


def machines(records: Sequence[RunRecord]) -> list[str]:
    """One line per kind of world the ranks met in, most used first."""
    found = Counter(_machine(record) for record in records if record.world)
    return [f"{line} ({_runs(count)})" for line, count in found.most_common()]


def provenance_rows(records: Sequence[RunRecord]) -> list[tuple[str, str, int]]:
    """(what, value, number of runs) for every value found, the most common value first."""
    rows: list[tuple[str, str, int]] = []
    for field, name in (_CODE | _MACHINE).items():
        rows += _counted(name, [_provenance(record, field) for record in records])
    names = sorted({n for r in records if r.provenance for n in r.provenance.versions})
    for name in names:
        rows += _counted(name, [_version(record, name) for record in records])
    for field, name in (("device", "device"), ("interface", "network interface")):
        rows += _counted(name, [_text(getattr(r.world, field, None)) for r in records])
    rows += _counted("hosts", [" ".join(_hosts(record)) or UNKNOWN for record in records])
    rows += _counted("batch order", [_text(getattr(r.data, "order", None)) for r in records])
    prints = [_text(getattr(r.data, "fingerprint", None))[:12] for r in records]
    return rows + _counted("data fingerprint", prints)


def mixtures(records: Sequence[RunRecord]) -> list[str]:
    """Warnings: what differs between the runs that stand in one table, and must not go unsaid."""
    warnings = []
    commits = {_provenance(record, "git_commit") for record in records}
    if len(commits) > 1:
        known = ", ".join(sorted(commit[:12] for commit in commits))
        warnings.append(f"The runs come from {len(commits)} git commits: {known}.")
    dirty = sum(r.provenance is not None and r.provenance.git_dirty is True for r in records)
    if dirty:
        warnings.append(
            f"{dirty} of {_runs(len(records))} ran from a checkout with uncommitted changes: "
            "the commit does not say what they ran."
        )
    devices = {_text(getattr(record.world, "device", None)) for record in records}
    if len(devices) > 1:
        warnings.append(f"The runs used {len(devices)} devices: {'; '.join(sorted(devices))}.")
    for name, found in (
        ("sets of package versions", {_versions(record) for record in records}),
        ("CPU models", {_provenance(record, "cpu") for record in records}),
    ):
        if len(found) > 1:
            warnings.append(f"The runs come from {len(found)} {name}: see the provenance table.")
    return warnings + _image_mixture(records) + _apart(records) + _data_mixture(records)


def _image_mixture(records: Sequence[RunRecord]) -> list[str]:
    """As after an image was replaced while cells waited in the queue."""
    cells: dict[str, list[str]] = {}
    for record in records:
        digest = _provenance(record, "image_digest").removeprefix("sha256:")
        cells.setdefault(digest, []).append(record.cell_id)
    if len(cells) < 2:
        return []
    most, *others = sorted(cells, key=lambda digest: -len(cells[digest]))
    told = [f"{_runs(len(cells[most]))} from {_short(most)}"]
    for digest in others:
        named = ", ".join(cells[digest][:_NAMED]) + (", ..." if len(cells[digest]) > _NAMED else "")
        told.append(f"{_runs(len(cells[digest]))} from {_short(digest)} ({named})")
    return [
        f"Runs that are compared here ran from {len(cells)} images: {'; '.join(told)}. Differences "
        "between them may come from the images: make sweep FORCE=1 runs all cells from one image."
    ]


def _short(digest: str) -> str:
    return "an image that is not recorded" if digest == UNKNOWN else digest[:12]


def _apart(records: Sequence[RunRecord]) -> list[str]:
    """Runs on a part of the same hosts are one machine; runs that share no host are not."""
    used = sorted({_hosts(record) for record in records if _hosts(record)})
    if any(not set(a) & set(b) for a, b in combinations(used, 2)):
        hosts = sorted({host for names in used for host in names})
        shown = ", ".join(hosts[:8]) + (", ..." if len(hosts) > 8 else "")
        return [f"Some runs share no host ({shown}): their times compare different machines."]
    return []


def _data_mixture(records: Sequence[RunRecord]) -> list[str]:
    prints: dict[str, set[str]] = {}
    for record in records:
        if record.data:
            prints.setdefault(record.config.dataset, set()).add(record.data.fingerprint)
    return [
        f"The data set {name} has {len(found)} different contents among the runs."
        for name, found in prints.items()
        if len(found) > 1
    ]


def _machine(record: RunRecord) -> str:
    world = record.world
    assert world is not None
    each = "1 GPU per rank" if world.device_kind == "gpu" else _cores(world.cores_per_rank)
    # the trainer's name of a CPU may say its share already
    device = world.device if "per rank" in world.device else f"{world.device}, {each}"
    nodes = "1 node" if world.nodes == 1 else f"{world.nodes} nodes"
    shared = ", ranks sharing cores" if world.oversubscribed else ""
    return (
        f"{device}{shared}, {nodes}, launcher {world.launcher}, "
        f"controller {world.controller}, data plane {world.data_plane}"
    )


def _cores(count: int) -> str:
    return "1 core per rank" if count == 1 else f"{count} cores per rank"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _hosts(record: RunRecord) -> tuple[str, ...]:
    return tuple(sorted(set(record.world.hostnames))) if record.world else ()


def _provenance(record: RunRecord, field: str) -> str:
    return _text(getattr(record.provenance, field, None))


def _version(record: RunRecord, name: str) -> str:
    return record.provenance.versions.get(name, UNKNOWN) if record.provenance else UNKNOWN


def _versions(record: RunRecord) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(record.provenance.versions.items())) if record.provenance else ()


def _text(value: object) -> str:
    if value is None:
        return UNKNOWN
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _counted(name: str, found: Sequence[str]) -> list[tuple[str, str, int]]:
    return [(name, value, count) for value, count in Counter(found).most_common()]
