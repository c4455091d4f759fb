"""Which machines, networks and code the runs used, and what differs between them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd

from analysis import fmt
from analysis.table import Column, Row, Table, frame, plain_rows
from analysis.topics.names import cores_text
from analysis.topics.topic import Caution, Topic, Touches

#: column of the runs -> its name in the report
_CODE = {"git_commit": "git commit", "git_dirty": "uncommitted changes", "image_digest": "image",
         "cpu": "CPU", "gpu": "GPU", "driver": "GPU driver", "kernel": "kernel"}  # fmt: skip
_WORLD = {"device": "device", "interface": "network interface", "hosts": "hosts",
          "order": "batch order"}  # fmt: skip
_OF_A_MACHINE = ["device", "device_kind", "cores_per_rank", "nodes", "oversubscribed", "launcher",
                 "controller", "data_plane"]  # fmt: skip
_SEVERAL: dict[str, tuple[str, Touches]] = {
    "git_commit": ("git commits", "none"), "versions": ("sets of package versions", "none"),
    "device": ("devices", "times"), "driver": ("GPU drivers", "times"),
    "image_digest": ("container images", "all"),
}  # fmt: skip
UNKNOWN = "not recorded"
COLUMNS: tuple[Column, ...] = (
    Column("what", "string", "what"),
    Column("value", "string", "value", wide=True),
    Column("runs", "Int64", "runs"),
)


def table(runs: pd.DataFrame) -> Table:
    """(what, value, number of runs) for every value found, the most common first."""
    found = {"machine": [_machine(row) for row in plain_rows(runs[_OF_A_MACHINE])]}
    found |= {name: _texts(runs[column]) for column, name in _CODE.items()}
    each = [json.loads(versions) for versions in runs["versions"].fillna("{}")]
    for package in sorted({package for versions in each for package in versions}):
        found[package] = [versions.get(package, UNKNOWN) for versions in each]
    found |= {name: _texts(runs[column]) for column, name in _WORLD.items()}
    found["data fingerprint"] = [text[:12] for text in _texts(runs["data_fingerprint"])]
    rows: list[Row] = [
        {"what": what, "value": value, "runs": count}
        for what, values in found.items()
        for value, count in Counter(values).most_common()
    ]
    return Table("provenance", "Machines and code", COLUMNS, frame(rows, COLUMNS), folded=True)


def mixtures(runs: pd.DataFrame) -> Iterator[Caution]:
    """What differs between the runs that stand in one table, and must not go unsaid; and what each
    touches."""
    if dirty := int(runs["git_dirty"].sum()):
        text = f"{dirty} of {fmt.runs(len(runs))} ran from a checkout with uncommitted changes: "
        yield Caution(f"{text}the commit does not say what they ran.", "all")
    several: dict[Touches, list[str]] = {}
    for column, (name, touches) in _SEVERAL.items():
        different = runs[column].nunique(dropna=False)
        if different > 1:
            several.setdefault(touches, []).append(f"{different} {name}")
    for touches, told in several.items():
        text = f"The runs come from {' and '.join(told)}: see the table Machines and code."
        yield Caution(text, touches)
    contents = runs.groupby("dataset", sort=False)["data_fingerprint"].nunique()
    for dataset, found in contents[contents > 1].items():
        text = f"The data set {dataset} has {found} different contents among the runs."
        yield Caution(text, "all")


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


def _texts(column: pd.Series[Any]) -> list[str]:
    """As the table shows values."""
    if column.dtype == "boolean":
        column = column.map({True: "yes", False: "no"})
    return [UNKNOWN if pd.isna(value) else str(value) or UNKNOWN for value in column]


TOPIC = Topic(
    tables=(lambda of: table(of.runs),),
    cautions=(lambda of: mixtures(of.runs),),
)
