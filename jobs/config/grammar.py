"""A sweep file as checked parts: what each cell shares, the axes, and the rules.

    name: digits_lr                 # default: the file's name; the folder under results/
    title: Rates on digits          # default: the name; headline of the report
    cores_per_rank: 1               # default: the machine's cores / the most ranks of a cell

    dataset: digits                 # any key of a cell may stand here: all cells have it
    model: cnn
    epochs: 10
    batch_per_rank: 64
    matrix:                         # every combination; the last key varies fastest
      gpus: [1, 2, 4]
      technique: [naive, lamb]
      seeds: 3                      # short for seed: [0, 1, 2]
    zip:                            # lists of one group advance together; groups are combinations
      - {data_fraction: [0.5, 1.0], base_batch: [32, 64]}
    exclude:                        # drops cells that have all of these; a list means "any of"
      - {technique: lamb, gpus: [1, 2]}
    include:                        # more cells, over the top level; lists are combined
      - {technique: sgd, gpus: 1, seed: [0, 1]}
    override:                       # sets keys of the cells that have all of `when`
      - when: {technique: lamb}
        set: {base_lr: 0.01, warmup_epochs: 2}

Keys of a cell: dataset, image_size, model, pretrained, technique, gpus (ranks), epochs, seed (0),
data_fraction (1.0), partition, framework (horovod), deterministic (true), width (1.0) and shortcuts
(true) of resnet_mini, and
- scaling: weak (default) with batch_per_rank, or strong with global_batch, which gpus must divide;
- accumulation (1): batches that each rank adds up per step, so that global batch = gpus x
  batch_per_rank x accumulation: the gradients of so many times the ranks. In strong scaling give
  batch_per_rank instead, what fits into memory, and the accumulation follows;
- base_batch: the global batch that base_lr belongs to; default: the batch at one GPU, which is
  batch_per_rank in weak scaling, whatever is accumulated, and global_batch in strong scaling.
  Needed where the batch is an axis, or a batch k times as large would not be seen as such;
- steps_per_epoch (default: a pass over the images): each epoch ends in an evaluation, and all that
  is said in epochs counts these; what is left of a pass after whole epochs is left out;
- sharpness_images: training images on which the sharpness of the minimum is measured at the end;
- validate_on: held_out (default), or train_part: a tenth of the training images, for searches;
- target: {train_accuracy: 0.75, validation_accuracy: 0.25, held_for: 2, within_s: 240}, one or both
  accuracies; the run ends when they were held for as many evaluations in a row, or too late;
- any parameter of a technique (techniques.yaml), which then replaces the technique's own. What is a
  kind with numbers (optimizer, schedule, batch_growth, augmentation) is replaced when its name is
  given, else the numbers given replace the technique's.
null unsets a key. ``exclude`` and ``when`` see cells as matrix, zip, top level and techniques.yaml
wrote them, before any override; overrides apply in order, to included cells as well.
A rule that matches no cell is an error: it would be a typo.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.config.keys import CELL_KEYS, SEEDS, value_problem
from jobs.config.yamlfile import Document, KeyPath, unknown

_FILE_KEYS = ("name", "title", "cores_per_rank")
_PARTS = ("matrix", "zip", "exclude", "include", "override")
TOP_LEVEL = (*_FILE_KEYS, *CELL_KEYS, *_PARTS)
_NAME = re.compile(r"[a-z0-9_]+")
MAX_CELLS = 10_000


@dataclass(frozen=True)
class Setting:
    """A value and where in the file it was written."""

    value: Any
    path: KeyPath


Settings = Mapping[str, Setting]
#: What one cell can have of it: one key for a matrix list, several for a zip group.
Axis = tuple[Settings, ...]


@dataclass(frozen=True)
class Rule:
    """Cells that have, for every key, one of its values."""

    when: Mapping[str, tuple[Any, ...]]
    path: KeyPath
    sets: Settings


@dataclass(frozen=True)
class Include:
    axes: tuple[Axis, ...]
    path: KeyPath


@dataclass(frozen=True)
class SweepFile:
    document: Document
    name: str
    title: str
    cores_per_rank: int | None
    common: Settings
    axes: tuple[Axis, ...]  # matrix lists, then zip groups
    exclude: tuple[Rule, ...]
    include: tuple[Include, ...]
    override: tuple[Rule, ...]


def parse(document: Document, techniques: Collection[str]) -> SweepFile:
    """Check every key and value of the file by itself.

    Raises:
        ConfigError: with file and line: an unknown key or name, a value of the wrong type, a key
            given in two places, lists of one zip group that differ in length.
    """
    return _Parser(document, techniques).whole()


class _Parser:
    def __init__(self, document: Document, techniques: Collection[str]) -> None:
        self.document = document
        self.techniques = techniques

    def whole(self) -> SweepFile:
        top = self.document.value
        self._known(top, (), TOP_LEVEL)
        name = self._text("name", self.document.source.stem)
        if not _NAME.fullmatch(name):
            text = f"name: {name!r}: expected small letters, digits and _ only"
            more = "" if "name" in top else "; rename the file or give it a 'name:'"
            raise self.document.error(("name",), text + more)
        cores = Setting(top.get("cores_per_rank"), ("cores_per_rank",))
        self._check("cores_per_rank", cores)
        common = {key: self._one(key, top[key], (key,)) for key in top if key in CELL_KEYS}
        axes = tuple(self._axes(common))
        return SweepFile(
            document=self.document,
            name=name,
            title=self._text("title", name),
            cores_per_rank=cores.value,
            common=common,
            axes=axes,
            exclude=tuple(self._rule(rule, path) for rule, path in self._rules("exclude")),
            include=tuple(
                Include(tuple(self._crossed(entry, path)), path)
                for entry, path in self._rules("include")
            ),
            override=tuple(self._override(rule, path) for rule, path in self._rules("override")),
        )

    def _text(self, key: str, default: str) -> str:
        value = self.document.value.get(key, default)
        if not isinstance(value, str) or not value.strip():
            raise self.document.error((key,), f"{key}: expected a text, found {value!r}; quote it")
        return " ".join(value.split())

    def _known(self, found: Mapping[str, Any], path: KeyPath, known: Sequence[str]) -> None:
        for key in found:
            if key not in known:
                raise self.document.error((*path, key), self._unknown_key(key, known))

    def _unknown_key(self, key: str, known: Sequence[str]) -> str:
        if key == SEEDS:
            return "'seeds' stands under matrix or in an include entry; elsewhere say 'seed'"
        if key in TOP_LEVEL:
            return f"{key!r} belongs to the top level of the file; known here: {', '.join(known)}"
        return unknown("key", key, known)

    def _check(self, key: str, setting: Setting) -> Setting:
        problem = value_problem(key, setting.value, self.techniques)
        if problem:
            raise self.document.error(setting.path, problem)
        return setting

    def _one(self, key: str, value: Any, path: KeyPath) -> Setting:
        if isinstance(value, list):
            raise self.document.error(path, f"{key}: a list of values belongs under 'matrix:'")
        return self._check(key, Setting(value, path))

    def _mapping(self, value: Any, path: KeyPath, what: str) -> dict[str, Any]:
        if not isinstance(value, dict) or not value:
            found = "nothing" if value in (None, {}) else repr(value)
            raise self.document.error(path, f"{what}: expected 'key: value', found {found}")
        return value

    def _axes(self, common: Settings) -> Iterator[Axis]:
        """Matrix lists and zip groups; a key may vary in one place only."""
        seen: dict[str, KeyPath] = {key: setting.path for key, setting in common.items()}
        matrix = self.document.value.get("matrix")
        matrix = {} if matrix is None else self._mapping(matrix, ("matrix",), "matrix")
        groups = [self._zipped(group, path) for group, path in self._rules("zip")]
        for axis in (*self._crossed(matrix, ("matrix",)), *groups):
            for key, setting in axis[0].items():
                path = setting.path[:-1]
                if key in seen:
                    line = self.document.line(seen[key])
                    raise self.document.error(path, f"{key!r} is given twice (also line {line})")
                seen[key] = path
            yield axis

    def _crossed(self, found: Mapping[str, Any], path: KeyPath) -> Iterator[Axis]:
        """One axis per key; a single value counts as a list of one."""
        self._known(found, path, (*CELL_KEYS, SEEDS))
        if SEEDS in found and "seed" in found:
            raise self.document.error((*path, SEEDS), "give 'seed' or 'seeds', not both")
        for key, value in found.items():
            if key == SEEDS:
                count = self._check(SEEDS, Setting(value, (*path, key))).value or 1
                values = list(range(min(count, MAX_CELLS + 1)))
                yield tuple({"seed": Setting(seed, (*path, key, 0))} for seed in values)
            else:
                yield tuple({key: setting} for setting in self._values(key, value, (*path, key)))

    def _values(self, key: str, value: Any, path: KeyPath) -> list[Setting]:
        values = value if isinstance(value, list) else [value]
        if not values:
            raise self.document.error(path, f"{key}: the list is empty, so there would be no cell")
        return [self._check(key, Setting(item, (*path, i))) for i, item in enumerate(values)]

    def _zipped(self, group: Any, path: KeyPath) -> Axis:
        group = self._mapping(group, path, "zip")
        self._known(group, path, CELL_KEYS)
        lists = {key: self._values(key, value, (*path, key)) for key, value in group.items()}
        if len({len(values) for values in lists.values()}) > 1:
            lengths = ", ".join(f"{key} {len(values)}" for key, values in lists.items())
            raise self.document.error(path, f"lists of a zip group differ in length: {lengths}")
        columns = zip(*lists.values(), strict=True)
        return tuple(dict(zip(lists, column, strict=True)) for column in columns)

    def _rules(self, part: str) -> Iterator[tuple[Any, KeyPath]]:
        """The items of a list of mappings; one mapping alone counts as a list of one."""
        value = self.document.value.get(part)
        items = value if isinstance(value, list) else [] if value is None else [value]
        for i, item in enumerate(items):
            path = (part, i) if isinstance(value, list) else (part,)
            yield self._mapping(item, path, part), path

    def _when(self, found: Mapping[str, Any], path: KeyPath) -> dict[str, tuple[Any, ...]]:
        self._known(found, path, CELL_KEYS)
        return {
            key: tuple(setting.value for setting in self._values(key, value, (*path, key)))
            for key, value in found.items()
        }

    def _rule(self, rule: Mapping[str, Any], path: KeyPath) -> Rule:
        return Rule(self._when(rule, path), path, {})

    def _override(self, rule: Mapping[str, Any], path: KeyPath) -> Rule:
        self._known(rule, path, ("when", "set"))
        when = self._mapping(rule.get("when"), (*path, "when"), "when")
        sets = self._mapping(rule.get("set"), (*path, "set"), "set")
        self._known(sets, (*path, "set"), CELL_KEYS)
        settings = {key: self._one(key, sets[key], (*path, "set", key)) for key in sets}
        return Rule(self._when(when, (*path, "when")), path, settings)
