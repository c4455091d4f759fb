"""The cells of a sweep as plain settings: axes crossed, excluded, included, overridden."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from jobs.config.grammar import MAX_CELLS, Axis, Rule, Setting, Settings, SweepFile
from jobs.config.keys import defaults
from jobs.config.techniques import TechniqueRow, spelled_out
from jobs.config.yamlfile import KeyPath, nearest


@dataclass(frozen=True)
class Cell:
    """What the file says about one cell; ``path`` is the part that asks for it."""

    settings: Settings
    path: KeyPath

    def values(self) -> dict[str, Any]:
        """Keys that are set; null means unset."""
        return {k: s.value for k, s in self.settings.items() if s.value is not None}


def expand(file: SweepFile, techniques: Mapping[str, TechniqueRow]) -> list[Cell]:
    """Cells in the order of the file; equal ones are not merged here.

    Raises:
        ConfigError: too many cells, none at all, or a rule that matches none.
    """
    _refuse_flood(file)
    # without an axis, include entries alone name the cells
    start = [] if file.include and not file.axes else [Cell(file.common, ())]
    crossed = [cell for one in start for cell in _crossed(one, file.axes, ())]
    seen = [_seen(cell, techniques) for cell in crossed]
    for rule in file.exclude:
        _refuse_idle(file, rule, seen)
    kept = [
        cell
        for cell, view in zip(crossed, seen, strict=True)
        if not any(matches(rule, view) for rule in file.exclude)
    ]
    cells = kept + list(_included(file))
    if not cells:
        raise file.document.error(("exclude",), "the exclude rules drop every cell of the sweep")
    return _overridden(file, cells, techniques)


def _refuse_flood(file: SweepFile) -> None:
    """Before anything is built: five lists of a hundred would be ten billion cells."""
    count = math.prod(len(axis) for axis in file.axes)
    count += sum(math.prod(len(axis) for axis in entry.axes) for entry in file.include)
    if count > MAX_CELLS:
        text = f"the sweep has {count:,} cells, {MAX_CELLS:,} are allowed: split it"
        raise file.document.error(("matrix",), text)


def _crossed(start: Cell, axes: Sequence[Axis], path: KeyPath) -> Iterator[Cell]:
    for chosen in product(*axes):
        settings = dict(start.settings)
        for part in chosen:
            settings |= part
        yield Cell(settings, path)


def _included(file: SweepFile) -> Iterator[Cell]:
    for entry in file.include:
        yield from _crossed(Cell(file.common, ()), entry.axes, entry.path)


def _overridden(
    file: SweepFile, cells: Sequence[Cell], techniques: Mapping[str, TechniqueRow]
) -> list[Cell]:
    """Every rule sees the cells as they were written; of two that set a key, the later wins."""
    seen = [_seen(cell, techniques) for cell in cells]
    result = list(cells)
    for rule in file.override:
        _refuse_idle(file, rule, seen)
        for i, view in enumerate(seen):
            if matches(rule, view):
                result[i] = replace(result[i], settings={**result[i].settings, **rule.sets})
    return result


def _seen(cell: Cell, techniques: Mapping[str, TechniqueRow]) -> dict[str, Any]:
    """A cell as rules see it: with the contract's defaults and the technique's parameters."""
    values = cell.values()
    row = techniques.get(str(values.get("technique")))
    return {**defaults(), **(row.settings({}) if row else {}), **values}


def matches(rule: Rule, seen: Mapping[str, Any]) -> bool:
    return all(
        any(_equal(key, seen.get(key), value) for value in values)
        for key, values in rule.when.items()
    )


def _equal(key: str, found: Any, wanted: Any) -> bool:
    """Equal, or, of a part with keys of its own, all that the rule names is as it says."""
    found, wanted = spelled_out(key, found), spelled_out(key, wanted)
    if isinstance(found, dict) and isinstance(wanted, dict):
        return all(found.get(name) == value for name, value in wanted.items())
    return bool(found == wanted)


def _refuse_idle(file: SweepFile, rule: Rule, seen: Sequence[Mapping[str, Any]]) -> None:
    """A rule that matches nothing is a typo."""
    if any(matches(rule, view) for view in seen):
        return
    text = f"this {rule.path[0]} rule matches none of the {len(seen)} cells"
    for key, values in rule.when.items():
        there = list(dict.fromkeys(_shown(view.get(key)) for view in seen))
        if not any(_equal(key, view.get(key), value) for view in seen for value in values):
            wanted = " or ".join(_shown(value) for value in values)
            near = nearest(_shown(values[0]), there)
            hint = f"; did you mean {near}?" if near else ""
            reason = f"{key} is never {wanted} (it is {', '.join(there) or 'not given'}){hint}"
            raise file.document.error(rule.path, f"{text}: {reason}")
    raise file.document.error(rule.path, f"{text}: none has all of it at once")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def axes_of(cell: Cell, file: SweepFile) -> str:
    """What tells this cell from others of the sweep, for a message: technique=lamb, gpus=2."""
    varied = {key for axis in file.axes for part in axis[:1] for key in part}
    varied |= {key for e in file.include for axis in e.axes for part in axis[:1] for key in part}
    parts = [f"{k}={_shown(s.value)}" for k, s in cell.settings.items() if k in varied]
    return ", ".join(parts) or "the only cell"


def written(file: SweepFile, key: str) -> Iterator[Setting]:
    """All settings of one key, in the order of the file's parts."""
    if key in file.common:
        yield file.common[key]
    for axis in (*file.axes, *(axis for entry in file.include for axis in entry.axes)):
        yield from (part[key] for part in axis if key in part)
