"""Which machines, networks and code the runs used, and what differs between them."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pandas as pd

from analysis.table import Column, Row, Table, first_of, frame, plain_rows, runs_in_words
from analysis.topics.names import cores_text
from analysis.topics.topic import Caution, Topic, Touches

#: column of the runs -> its name in the report
_CODE = {"git_commit": "git commit", "git_dirty": "uncommitted changes", "image_digest": "image"}
_MACHINE = {"cpu": "CPU", "gpu": "GPU", "driver": "GPU driver", "kernel": "kernel"}
_WORLD = {"device": "device", "interface": "network interface", "hosts": "hosts",
          "order": "batch order"}  # fmt: skip
_OF_A_MACHINE = ["device", "device_kind", "cores_per_rank", "nodes", "oversubscribed", "launcher",
                 "controller", "data_plane"]  # fmt: skip
_SEVERAL: dict[str, tuple[str, Touches]] = {
    "versions": ("sets of package versions", "none"), "driver": ("GPU drivers", "times"),
    "cpu": ("CPU models", "times"),
}  # fmt: skip
UNKNOWN = "not recorded"
#: Commits in a sentence; more are counted.
_NAMED = 4
COLUMNS: tuple[Column, ...] = (
    Column("what", "string", "what"),
    Column("value", "string", "value", wide=True),
    Column("runs", "Int64", "runs"),
)
#: Values of one kind that the table names.
MOST = 20


def table(runs: pd.DataFrame) -> Table:
    """(what, value, number of runs) for every value found, the most common first."""
    found = [("machine", line, count) for line, count in machines(runs)]
    found += provenance_rows(runs)
    rows: list[Row] = []
    for what, group in groupby(found, key=lambda row: row[0]):
        values = [{"what": what, "value": value, "runs": count} for _, value, count in group]
        rows += values[:MOST]
        if rest := values[MOST:]:
            others = sum(row["runs"] for row in rest)
            rows.append({"what": what, "value": f"{len(rest)} others", "runs": others})
    return Table("provenance", "Machines and code", COLUMNS, frame(rows, COLUMNS), folded=True)


def machines(runs: pd.DataFrame) -> list[tuple[str, int]]:
    """(what it is, number of runs) for every kind of world the ranks met in, most used first."""
    found = runs.groupby(_OF_A_MACHINE, sort=False, dropna=False).size().reset_index(name="n")
    lines = pd.Series([_machine(row) for row in plain_rows(found)], dtype="string")
    counts = found["n"].groupby(lines, sort=False).sum()
    return _most_common(counts)


def provenance_rows(runs: pd.DataFrame) -> list[tuple[str, str, int]]:
    """(what, value, number of runs) for every value found, the most common value first."""
    rows: list[tuple[str, str, int]] = []
    for column, name in (_CODE | _MACHINE).items():
        rows += _counted(name, _texts(runs[column]))
    each = runs["versions"].map(dict)
    for name in sorted({name for versions in runs["versions"].unique() for name, _ in versions}):
        rows += _counted(name, each.map(lambda versions, name=name: versions.get(name, UNKNOWN)))
    for column, name in _WORLD.items():
        rows += _counted(name, _texts(runs[column]))
    return rows + _counted("data fingerprint", _texts(runs["data_fingerprint"]).str[:12])


def mixtures(runs: pd.DataFrame) -> list[Caution]:
    """Warnings: what differs between the runs that stand in one table, and must not go unsaid; and
    what each touches."""
    warnings: list[Caution] = []
    commits = sorted(_texts(runs["git_commit"]).unique())
    if len(commits) > 1:
        known = first_of([commit[:12] for commit in commits], _NAMED)
        text = f"The runs come from {len(commits)} git commits: {known}."
        warnings.append(Caution(text, "none"))
    dirty = int(runs["git_dirty"].sum())
    if dirty:
        text = (
            f"{dirty} of {runs_in_words(len(runs))} ran from a checkout with uncommitted changes: "
            "the commit does not say what they ran."
        )
        warnings.append(Caution(text, "all"))
    devices = sorted(_texts(runs["device"]).unique())
    if len(devices) > 1:
        text = f"The runs used {len(devices)} devices: {'; '.join(devices)}."
        warnings.append(Caution(text, "times"))
    for column, (name, touches) in _SEVERAL.items():
        different = runs[column].nunique(dropna=False)
        told = column == "cpu" and len(devices) > 1  # devices name the CPU that computes
        if different > 1 and not told:
            text = f"The runs come from {different} {name}: see the table Machines and code."
            warnings.append(Caution(text, touches))
    return warnings + _image_mixture(runs) + _apart(runs) + _data_mixture(runs)


def _image_mixture(runs: pd.DataFrame) -> list[Caution]:
    """As after an image was replaced while cells waited in the queue."""
    digests = _texts(runs["image_digest"]).str.removeprefix("sha256:")
    counts = _most_common(digests.groupby(digests, sort=False).size())
    if len(counts) < 2:
        return []
    said = []
    for place, (digest, count) in enumerate(counts):
        text = f"{runs_in_words(count)} from {_short(digest)}"
        named = first_of(runs.loc[digests == digest, "cell_id"].tolist(), 1)
        said.append(f"{text} ({named})" if place else text)
    text = (
        f"Runs that are compared here ran from {len(counts)} images: {'; '.join(said)}. "
        "Differences between them may come from the images: make sweep FORCE=1 runs all cells from "
        "one image."
    )
    return [Caution(text, "all")]


def _short(digest: str) -> str:
    return "an image that is not recorded" if digest == UNKNOWN else digest[:12]


def _apart(runs: pd.DataFrame) -> list[Caution]:
    """Runs on a part of the same hosts are one machine."""
    used = [frozenset(names) for names in runs["hosts"].unique() if names]
    if not used or frozenset.intersection(*used):
        return []
    shown = first_of(sorted(frozenset.union(*used)), 8)
    text = f"No host is in all runs ({shown}): their times may compare different machines."
    return [Caution(text, "times")]


def _data_mixture(runs: pd.DataFrame) -> list[Caution]:
    contents = runs.groupby("dataset", sort=False)["data_fingerprint"].nunique()
    return [
        Caution(f"The data set {name} has {found} different contents among the runs.", "all")
        for name, found in contents.items()
        if found > 1
    ]


def _machine(row: Row) -> str:
    each = "1 GPU per rank" if row["device_kind"] == "gpu" else cores_text(row["cores_per_rank"])
    # the trainer's name of a CPU may say its share already
    device = row["device"] if "per rank" in row["device"] else f"{row['device']}, {each}"
    nodes = "1 node" if row["nodes"] == 1 else f"{row['nodes']} nodes"
    shared = ", ranks sharing cores" if row["oversubscribed"] else ""
    return (
        f"{device}{shared}, {nodes}, launcher {row['launcher']}, "
        f"controller {row['controller']}, data plane {row['data_plane']}"
    )


def _texts(column: pd.Series[Any]) -> pd.Series[str]:
    if column.dtype == "boolean":
        column = column.map({True: "yes", False: "no"}).astype("string")
    if column.dtype == "object":
        column = column.map(str).replace("", UNKNOWN)
    return column.fillna(UNKNOWN)


def _counted(name: str, found: pd.Series[str]) -> list[tuple[str, str, int]]:
    counts = found.groupby(found, sort=False).size()
    return [(name, value, count) for value, count in _most_common(counts)]


def _most_common(counts: pd.Series[int]) -> list[tuple[str, int]]:
    """Of equal counts, what was found first."""
    ordered = counts.sort_values(ascending=False, kind="stable")
    return [(str(value), int(count)) for value, count in ordered.items()]


TOPIC = Topic(
    tables=(lambda of: table(of.runs),),
    cautions=(lambda of: mixtures(of.runs),),
)
