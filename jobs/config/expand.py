"""The cells of a sweep as plain settings: axes crossed, excluded, included, overridden."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from jobs.config.grammar import DEFAULTS, MAX_CELLS, Axis, Rule, Settings, SweepFile
from jobs.config.techniques import TechniqueRow, spelled_out
from jobs.config.yamlfile import KeyPath
from train.errors import ConfigError


@dataclass(frozen=True)
class Cell:
    """What the file says about one cell; ``path`` is the part that asks for it."""

    file: SweepFile
    settings: Settings
    path: KeyPath

    def values(self) -> dict[str, Any]:
        """Keys that are set; null means unset."""
        return {k: s.value for k, s in self.settings.items() if s.value is not None}

    def error(self, key: str, text: str) -> ConfigError:
        """``text`` with the line of ``key``, and what tells this cell from others of the sweep."""
        setting = self.settings.get(key)
        varied = {name for part in self.file.all_settings()[1:] for name in part}
        own = [f"{k}={_shown(s.value)}" for k, s in self.settings.items() if k in varied]
        text = f"{text} (cell: {', '.join(own) or 'the only cell'})"
        return self.file.document.error(setting.path if setting else self.path, text)


def expand(file: SweepFile, techniques: Mapping[str, TechniqueRow]) -> list[Cell]:
    """Cells in the order of the file; equal ones are not merged here.

    Raises:
        ConfigError: too many cells, none at all, or a rule that matches none.
    """
    count = sum(math.prod(map(len, axes)) for axes in (file.axes, *file.include.values()))
    if count > MAX_CELLS:  # known before anything is built
        text = f"the sweep has {count:,} cells, {MAX_CELLS:,} are allowed: split it"
        raise file.document.error(("matrix",), text)
    # without an axis, include entries alone name the cells
    crossed = [] if file.include and not file.axes else _crossed(file, file.axes, ())
    views = [_as_written(cell, techniques) for cell in crossed]
    dropped = {i for rule in file.exclude for i in _matching(file, rule, views)}
    cells = [cell for i, cell in enumerate(crossed) if i not in dropped]
    for path, axes in file.include.items():
        cells += _crossed(file, axes, path)
    if not cells:
        raise file.document.error(("exclude",), "the exclude rules drop every cell of the sweep")
    views = [_as_written(cell, techniques) for cell in cells]
    for rule in file.override:  # of two that set a key, the later wins
        for i in _matching(file, rule, views):
            cells[i] = replace(cells[i], settings={**cells[i].settings, **rule.sets})
    return cells


def _crossed(file: SweepFile, axes: Sequence[Axis], path: KeyPath) -> list[Cell]:
    cells = []
    for chosen in product(*axes):
        settings = dict(file.common)
        for part in chosen:
            settings |= part
        cells.append(Cell(file, settings, path))
    return cells


def _as_written(cell: Cell, techniques: Mapping[str, TechniqueRow]) -> dict[str, Any]:
    """A cell as rules see it: with the contract's defaults and the technique's parameters, before
    any override."""
    values = cell.values()
    row = techniques.get(str(values.get("technique")))
    return {**DEFAULTS, **(row.fields if row else {}), **values}


def _matching(file: SweepFile, rule: Rule, views: Sequence[Mapping[str, Any]]) -> list[int]:
    """Positions of the cells that a rule is about.

    Raises:
        ConfigError: there is none, so the rule has a typo.
    """
    matching = [
        i
        for i, view in enumerate(views)
        if all(_has(view, key, values) for key, values in rule.when.items())
    ]
    if matching:
        return matching
    text = f"this {rule.path[0]} rule matches none of the {len(views)} cells"
    for key, values in rule.when.items():
        if not any(_has(view, key, values) for view in views):
            there = ", ".join(dict.fromkeys(_shown(view.get(key)) for view in views))
            wanted = " or ".join(_shown(value) for value in values)
            reason = f"{key} is never {wanted} (it is {there or 'not given'})"
            raise file.document.error(rule.path, f"{text}: {reason}")
    raise file.document.error(rule.path, f"{text}: none has all of it at once")


def _has(view: Mapping[str, Any], key: str, values: Sequence[Any]) -> bool:
    """Whether one of the values is the cell's, or names some numbers of the cell's kind."""
    own = spelled_out(key, view.get(key))
    wanted = [spelled_out(key, value) for value in values]
    parts = [value for value in wanted if isinstance(own, dict) and isinstance(value, dict)]
    return own in wanted or any(part.items() <= own.items() for part in parts)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
