"""Where the numbers come from: machines, code, versions; and when one table mixes several.

``runs`` is the frame of the usable runs; see RUNS in analysis/records/columns.py.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pandas as pd

from analysis.table import Row, first_of, plain_rows, runs_in_words

#: column of the runs -> its name in the report
_CODE = {"git_commit": "git commit", "git_dirty": "uncommitted changes", "image_digest": "image"}
_MACHINE = {"cpu": "CPU", "gpu": "GPU", "driver": "GPU driver"}
_WORLD = {"device": "device", "interface": "network interface", "hosts": "hosts",
          "order": "batch order"}  # fmt: skip
_OF_A_MACHINE = ["device", "device_kind", "cores_per_rank", "nodes", "oversubscribed", "launcher",
                 "controller", "data_plane"]  # fmt: skip
UNKNOWN = "not recorded"
#: More cells than this are not named.
_NAMED = 4


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
    known = {text: json.loads(text) for text in runs["versions"].dropna().unique()}
    for name in sorted({name for versions in known.values() for name in versions}):
        of = {text: versions.get(name, UNKNOWN) for text, versions in known.items()}
        rows += _counted(name, runs["versions"].map(of).fillna(UNKNOWN))
    for column, name in _WORLD.items():
        rows += _counted(name, _texts(runs[column]))
    return rows + _counted("data fingerprint", _texts(runs["data_fingerprint"]).str[:12])


def mixtures(runs: pd.DataFrame) -> list[str]:
    """Warnings: what differs between the runs that stand in one table, and must not go unsaid."""
    warnings = []
    commits = sorted(_texts(runs["git_commit"]).unique())
    if len(commits) > 1:
        known = first_of([commit[:12] for commit in commits], _NAMED)
        warnings.append(f"The runs come from {len(commits)} git commits: {known}.")
    dirty = int(runs["git_dirty"].sum())
    if dirty:
        warnings.append(
            f"{dirty} of {runs_in_words(len(runs))} ran from a checkout with uncommitted changes: "
            "the commit does not say what they ran."
        )
    devices = sorted(_texts(runs["device"]).unique())
    if len(devices) > 1:
        warnings.append(f"The runs used {len(devices)} devices: {'; '.join(devices)}.")
    several = {"sets of package versions": "versions", "GPU drivers": "driver"}
    if len(devices) < 2:  # which name the CPU that computes
        several["CPU models"] = "cpu"
    for name, column in several.items():
        different = runs[column].nunique(dropna=False)
        if different > 1:
            warnings.append(f"The runs come from {different} {name}: see the provenance table.")
    return warnings + _image_mixture(runs) + _apart(runs) + _data_mixture(runs)


def _image_mixture(runs: pd.DataFrame) -> list[str]:
    """As after an image was replaced while cells waited in the queue."""
    digests = _texts(runs["image_digest"]).str.removeprefix("sha256:")
    counts = _most_common(digests.groupby(digests, sort=False).size())
    if len(counts) < 2:
        return []
    said = []
    for place, (digest, count) in enumerate(counts):
        text = f"{runs_in_words(count)} from {_short(digest)}"
        named = first_of(runs.loc[digests == digest, "cell_id"].tolist(), _NAMED)
        said.append(f"{text} ({named})" if place else text)
    return [
        f"Runs that are compared here ran from {len(counts)} images: {'; '.join(said)}. "
        "Differences between them may come from the images: make sweep FORCE=1 runs all cells from "
        "one image."
    ]


def _short(digest: str) -> str:
    return "an image that is not recorded" if digest == UNKNOWN else digest[:12]


def _apart(runs: pd.DataFrame) -> list[str]:
    """Runs on a part of the same hosts are one machine; runs that share no host are not."""
    used = [set(names.split()) for names in runs["hosts"].dropna().unique()]
    # a host that all used needs no comparison of pairs
    if not used or set.intersection(*used):
        return []
    if any(a.isdisjoint(b) for a, b in combinations(used, 2)):
        shown = first_of(sorted(set.union(*used)), 8)
        return [f"Some runs share no host ({shown}): their times compare different machines."]
    return []


def _data_mixture(runs: pd.DataFrame) -> list[str]:
    contents = runs.groupby("dataset", sort=False)["data_fingerprint"].nunique()
    return [
        f"The data set {name} has {found} different contents among the runs."
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


def cores_text(count: int) -> str:
    return "1 core per rank" if count == 1 else f"{count} cores per rank"


def _texts(column: pd.Series[Any]) -> pd.Series[str]:
    if column.dtype == "boolean":
        column = column.map({True: "yes", False: "no"}).astype("string")
    return column.fillna(UNKNOWN)


def _counted(name: str, found: pd.Series[str]) -> list[tuple[str, str, int]]:
    counts = found.groupby(found, sort=False).size()
    return [(name, value, count) for value, count in _most_common(counts)]


def _most_common(counts: pd.Series[int]) -> list[tuple[str, int]]:
    """Of equal counts, what was found first."""
    ordered = counts.sort_values(ascending=False, kind="stable")
    return [(str(value), int(count)) for value, count in ordered.items()]
