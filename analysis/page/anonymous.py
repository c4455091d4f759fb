"""A sweep without what names a machine or a person: hosts, folders, addresses and logs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records.frames import Frames
from analysis.records.gather import Problem
from analysis.table import by_number
from analysis.topics.cells.completeness import LEFT_OUT
from train.config.datasets import DATASETS
from train.record.run import RECORD_NAME

_PATH = re.compile(r"""(?<![\w.)/])~?/[^\s/"'<>|:;,()][^\s"'<>|:;,()]*""")
_ADDRESS = re.compile(
    r"\b\d{1,3}(\.\d{1,3}){3}\b|(?<![\w:])[0-9a-f:]*::([0-9a-f:.]*[0-9a-f])?(%\w+)?(?![\w:])"
    r"|\b[0-9a-f]{1,4}(:[0-9a-f]{1,4}){3,7}\b|\b[\w.+-]+@[\w.-]+\w\b",
    re.IGNORECASE,
)
#: What may name a machine that no record names: gpu07, node-3, login.centre.example.
_MAY_NAME = re.compile(
    r"(?<![\w.-])(?<!sha256:)(?!(?:sha256|fp16|bf16|b?float\d+|u?int\d+|utf-8)\b)[a-z][a-z_-]*\d"
    r"|(?<![\w.-])[a-z][\w-]*\.(?!jsonl?\b)[a-z][\w-]+",
    re.IGNORECASE,
)
#: Columns that hold words of a fixed list, or keys: no name of a machine is in them.
_KEYS = frozenset({
    "cell_id", "state", "status", "technique", "condition", "condition_any_framework",
    "technique_settings", "model", "framework", "partition", "validate_on", "scaling",
    "device_kind", "launcher", "controller", "data_plane", "git_commit", "image_digest",
    "outcome", "tensorflow", "horovod", "versions", "data_fingerprint", "started_at",
    "ended_at",
})  # fmt: skip
#: Slurm's short form of several nodes.
_NODE_LIST = re.compile(r"[\w.-]*\w\[\d[\d,-]*\]")


def without_names(frames: Frames, sweeps: Sequence[Path] = ()) -> Frames:
    """Hosts become node-1, node-2, ... (the same one everywhere), paths become PATH.

    Left out are what failed and unreadable records say, all logs, the names of unplanned folders,
    and an alarm or a reason that may name a machine of which no record of the sweep tells.

    Args:
        sweeps: the folders of merged sweeps, which need not have the sweeps' names.
    """
    hosts = {host for names in frames.runs["hosts"] for host in names}
    hosts |= {*frames.traffic["host"].dropna()}
    for cell in (*(problem.cell_id for problem in frames.problems), *frames.unplanned):
        for folder in sweeps or [frames.folder]:
            hosts |= _hosts(folder / _own_id(cell) / RECORD_NAME)
    cells = [*frames.planned["cell_id"], *frames.attempts["cell_id"]]
    names = _Names({host for host in hosts if host.strip(".")}, _folders(frames), cells)
    tables = {f.name: getattr(frames, f.name) for f in fields(frames)}
    cleaned: dict[str, Any] = {
        name: _cleaned(table, names)
        for name, table in tables.items()
        if isinstance(table, pd.DataFrame)
    }
    # a site's name is that of a cluster
    nowhere = pd.Series(pd.NA, index=frames.attempts.index, dtype="string")
    cleaned["attempts"] = cleaned["attempts"].assign(site=nowhere)
    return replace(
        frames,
        folder=Path(),
        name=names.replaced(frames.name),
        title=names.replaced(frames.title),
        problems=tuple(_problem(problem, names) for problem in frames.problems),
        unplanned=tuple(f"folder-{n}" for n, _ in enumerate(frames.unplanned, start=1)),
        **cleaned,
    )


def _hosts(record: Path) -> set[str]:
    """Of a record that is in no table, as far as it can be read."""
    try:
        return {str(name) for name in json.loads(record.read_bytes())["world"]["hostnames"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
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


class _Names:
    """Names of machines and folders, and what stands for each."""

    def __init__(self, hosts: Iterable[str], folders: dict[str, str], cells: Iterable[str]) -> None:
        # an id begins with the name of the data set, which may be a folder's
        data = sorted({_own_id(cell).partition("-")[0] for cell in cells} - set(DATASETS))
        self._data = {name: f"folder{n}" for n, name in enumerate(data, start=1)}
        ordered = sorted({host.lower() for host in hosts}, key=by_number)
        names = {host: f"node-{n}" for n, host in enumerate(ordered, start=1)}
        # a text may have the short name of a host whose record has the long one
        short = {host.split(".")[0]: name for host, name in names.items()}
        short = {host: name for host, name in short.items() if host and not host.isdigit()}
        self._hosts, self._folders = short | names, folders
        # in a word as gpu07-ib0, too, and with whatever domain
        self._host = re.compile(
            rf"(?<![^\W_])({_any_of(self._hosts)})(\.[a-z][\w-]*)*(?![^\W_])", re.IGNORECASE
        )
        self._folder = re.compile(rf"(?<![\w-])({_any_of(folders)})(?![\w-])")

    def cell(self, cell_id: str) -> str:
        sweep, slash, own = cell_id.rpartition("/")
        data, dash, rest = own.partition("-")
        return self.replaced(sweep) + slash + self._data.get(data, data) + dash + rest

    def replaced(self, text: str) -> str:
        """The text without any name that is known, or shows by its form."""
        text = self._folder.sub(lambda found: self._folders[found[0]], text)
        return _by_form(self._host.sub(lambda found: self._hosts[found[1].lower()], text))

    def told(self, text: str) -> str:
        """The same for words of a record; left out where one of them may name a machine."""
        rest = _by_form(self._host.sub("", self._folder.sub("", text)))
        return LEFT_OUT if _MAY_NAME.search(rest) else self.replaced(text)


def _own_id(cell_id: str) -> str:
    """Of merged sweeps a cell is SWEEP/CELL."""
    return cell_id.rpartition("/")[2]


def _any_of(words: Iterable[str]) -> str:
    """The longest that fits; of no words, nothing fits."""
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) or "(?!)"


def _by_form(text: str) -> str:
    return _PATH.sub("PATH", _NODE_LIST.sub("NODES", _ADDRESS.sub("ADDRESS", text)))


def _cleaned(table: pd.DataFrame, names: _Names) -> pd.DataFrame:
    texts: pd.DataFrame = table.select_dtypes(["string", "object"])
    changed: dict[str, Any] = {}
    if "cell_id" in table:
        changed["cell_id"] = table["cell_id"].astype("string").map(names.cell).astype("string")
    for column in texts.columns.difference([*_KEYS]):
        told = column.endswith("_why") or column == "alarms"
        clean = partial(_entries, names.told if told else names.replaced)
        each = {value: clean(value) for value in texts[column].dropna().unique()}
        if any(value != new for value, new in each.items()):
            new = texts[column].map(each.get, na_action="ignore")
            changed[column] = new.astype(texts[column].dtype)
    return table.assign(**changed)


def _entries(clean: Callable[[str], str], value: Any) -> Any:
    """Of a text, or of each entry of a list."""
    return clean(value) if isinstance(value, str) else type(value)(map(clean, value))


def _problem(problem: Problem, names: _Names) -> Problem:
    problem = replace(problem, cell_id=names.cell(problem.cell_id), hosts=())
    if problem.kind in ("failed", "unreadable"):
        return replace(problem, reason=LEFT_OUT, where=None, what_to_do=None, log_tail=())
    return replace(problem, reason=names.told(problem.reason))
