"""A sweep without what names a machine or a person: hosts, folders, addresses and logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records.frames import Frames
from analysis.records.gather import Problem
from train.record.run import RECORD_NAME

LEFT_OUT = "left out, since it may name a host"
_PATH = re.compile(r"""(?<![\w.)/])~?/[^\s/"'<>|:;,()][^\s"'<>|:;,()]*""")
_ADDRESS = re.compile(
    r"\b\d{1,3}(\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(:{1,2}[0-9a-f]{1,4}){3,7}\b|\b[\w.+-]+@[\w.-]+\w\b",
    re.IGNORECASE,
)
#: Columns that hold words of a fixed list, or keys: no name of a machine is in them.
_KEYS = frozenset({
    "cell_id", "state", "status", "technique", "condition", "condition_any_framework",
    "technique_settings", "model", "framework", "partition", "validate_on", "scaling",
    "device_kind", "launcher", "controller", "data_plane", "git_commit", "image_digest",
    "outcome", "job", "tensorflow", "horovod", "versions", "data_fingerprint", "started_at",
    "ended_at",
})  # fmt: skip
#: Slurm's short form of several nodes.
_NODE_LIST = re.compile(r"[\w.-]*\w\[\d[\d,-]*\]")


def without_names(frames: Frames) -> Frames:
    """Hosts become node-1, node-2, ... (the same one everywhere), paths become PATH.

    Names without a blank, since a run's hosts are one text with blanks between them. What the
    record of a failed cell says is left out where the record does not say which hosts it met.
    """
    met = {p.cell_id: _hosts(frames.folder / p.cell_id / RECORD_NAME) for p in frames.problems}
    told = [*frames.runs["hosts"].dropna().unique(), *frames.traffic["host"].dropna().unique()]
    hosts = {host for text in told for host in text.split()}
    known = {host for host in hosts.union(*met.values()) if host.strip(".")}
    clean = _cleaner(known, _folders(frames))
    tables = {f.name: getattr(frames, f.name) for f in fields(frames)}
    cleaned: dict[str, Any] = {
        name: _cleaned(table, clean)
        for name, table in tables.items()
        if isinstance(table, pd.DataFrame)
    }
    # a site's name is that of a cluster
    nowhere = pd.Series(pd.NA, index=frames.attempts.index, dtype="string")
    cleaned["attempts"] = cleaned["attempts"].assign(site=nowhere)
    problems = tuple(_problem(p, clean, known=bool(met[p.cell_id])) for p in frames.problems)
    return replace(frames, title=clean(frames.title), problems=problems, **cleaned)


def _hosts(record: Path) -> set[str]:
    """Of a record that is in no table, as far as it can be read."""
    try:
        return {str(name) for name in json.loads(record.read_bytes())["world"]["hostnames"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _folders(frames: Frames) -> dict[str, str]:
    """Paths that may hold blanks, which no pattern finds, and what stands for each."""
    found = {str(frames.folder.resolve()): "PATH"}
    configs = pd.concat([frames.planned, frames.runs])
    for column, stands in (("dataset", "folder"), ("pretrained", "weights")):
        paths = (str(value) for value in sorted(configs[column].dropna().unique()))
        paths = (path.removeprefix("folder:") for path in paths if "/" in path)
        found |= {path: f"{stands}-{n}" for n, path in enumerate(paths, start=1)}
    return found


def _cleaner(hosts: Iterable[str], folders: dict[str, str]) -> Callable[[str], str]:
    names = {host: f"node-{n}" for n, host in enumerate(sorted(hosts, key=_by_number), start=1)}
    # a text may have the short name of a host whose record has the long one
    short = {host.split(".")[0]: name for host, name in names.items()}
    short = {host: name for host, name in short.items() if host and not host.isdigit()}
    stands = folders | short | names
    longest = sorted(stands, key=len, reverse=True)
    known = re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in longest))

    def clean(text: str) -> str:
        text = known.sub(lambda found: stands[found[0]], text)
        return _ADDRESS.sub("ADDRESS", _NODE_LIST.sub("NODES", _PATH.sub("PATH", text)))

    return clean


def _by_number(host: str) -> list[tuple[str, int]]:
    """node2 before node10."""
    return [(text, int(part or 0)) for text, part in re.findall(r"(\D*)(\d*)", host)]


def _cleaned(table: pd.DataFrame, clean: Callable[[str], str]) -> pd.DataFrame:
    texts: pd.DataFrame = table.select_dtypes("string")
    changed = {}
    for name in texts.columns.difference(_KEYS):
        each = {text: clean(text) for text in texts[name].dropna().unique()}
        if any(text != new for text, new in each.items()):
            changed[name] = texts[name].map(each).astype("string")
    return table.assign(**changed)


def _problem(problem: Problem, clean: Callable[[str], str], *, known: bool) -> Problem:
    if problem.kind == "failed" and not known:
        return replace(problem, reason=LEFT_OUT, where=None, what_to_do=None, log_tail=())
    where, todo = (text and clean(text) for text in (problem.where, problem.what_to_do))
    reason = clean(problem.reason)
    return replace(problem, reason=reason, where=where, what_to_do=todo, log_tail=())
