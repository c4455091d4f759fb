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
(true) of resnet_mini, keep_weights (false), and
- model: linear, mlp, cnn, resnet_mini or resnet50; or a network that runs as it was built:
  keras.applications.NAME, or nets/vit.py:build, a file (relative to this one) and its function
  (docs/own-network.md). If two rows differ only in normalisation none and batch_norm, one is left
  out for such a network;
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
- dataset: a name, folder:PATH or arrays:FILE.npz (docs/own-data.md);
- a relative path, of pretrained weights, folder:PATH or arrays:FILE.npz, begins in the data folder
  (DATA=DIR). Cells have the sha256 of arrays, networks, and the weights of the latter;
- any parameter of a technique (techniques.yaml), which then replaces the technique's own. What is a
  kind with numbers (optimizer, schedule, batch_growth, augmentation) is replaced when its name is
  given, else the numbers given replace the technique's.
null unsets a key. ``exclude`` and ``when`` see cells as matrix, zip, top level and techniques.yaml
wrote them, before any override; overrides apply in order, to included cells as well.
A rule that matches no cell is an error: it would be a typo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from jobs.config.techniques import PARAMETERS
from jobs.config.yamlfile import Document, KeyPath
from train.config.frozen import Frozen
from train.config.run import RunConfig

#: Keys of a cell. All but the two batches and the technique's parameters are RunConfig's own.
CELL_KEYS = (
    *(key for key in RunConfig.model_fields if key != "schema_version"),
    *("global_batch", "base_batch", *PARAMETERS),
)
#: ``seeds: 3`` stands for ``seed: [0, 1, 2]`` where lists are crossed.
SEEDS = "seeds"
PARTS = ("matrix", "zip", "exclude", "include", "override")
MAX_CELLS = 10_000


class Heading(Frozen):
    """What a file says of the sweep as a whole."""

    name: str = Field(pattern="^[a-z0-9_]+$")
    title: str | None = None
    cores_per_rank: int | None = Field(None, ge=1)


TOP_LEVEL = (*Heading.model_fields, *CELL_KEYS, *PARTS)


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
    """Cells that have, for every key, one of its values; what an override sets in them."""

    when: Mapping[str, Sequence[Setting]]
    sets: Settings
    path: KeyPath


class SweepFile:
    """The parts of a file. Keys are known; values are checked where they make up a cell."""

    def __init__(self, document: Document) -> None:
        """Raises ConfigError with the line: an unknown key, a key that is given in two places, a
        part of the wrong form, lists of one zip group that differ in length."""
        self.document = document
        top = document.mapping(document.value, (), TOP_LEVEL)
        heading = {key: top[key] for key in Heading.model_fields if top.get(key) is not None}
        self.heading = document.checked(Heading, {"name": document.source.stem, **heading})
        self.common = self._single({key: top[key] for key in top if key in CELL_KEYS}, ())
        self.axes = tuple(self._axes())  # matrix lists, then zip groups
        self.exclude = [
            Rule(self._lists(entry, path), {}, path) for entry, path in self._entries("exclude")
        ]
        self.include = [tuple(self._crossed(*entry)) for entry in self._entries("include")]
        self.override = [self._override(*entry) for entry in self._entries("override")]

    def _entries(self, part: str) -> Iterator[tuple[Any, KeyPath]]:
        """The items of a list; one alone counts as a list of one."""
        value = self.document.value.get(part)
        if isinstance(value, list):
            yield from ((item, (part, i)) for i, item in enumerate(value))
        elif value is not None:
            yield value, (part,)

    def _axes(self) -> Iterator[Axis]:
        """Matrix lists and zip groups; a key may vary in one place only."""
        seen = dict(self.common)
        matrix = self.document.value.get("matrix")
        crossed = [] if matrix is None else self._crossed(matrix, ("matrix",))
        zipped = [self._zipped(group, path) for group, path in self._entries("zip")]
        for axis in (*crossed, *zipped):
            for key, setting in axis[0].items():
                if key in seen:
                    line = self.document.line(seen[key].path)
                    text = f"{key!r} is given twice (also line {line})"
                    raise self.document.error(setting.path, text)
            seen |= axis[0]
            yield axis

    def _crossed(self, entry: Any, path: KeyPath) -> Iterator[Axis]:
        """One axis per key."""
        for key, settings in self._lists(entry, path).items():
            yield tuple({key: setting} for setting in settings)

    def _zipped(self, entry: Any, path: KeyPath) -> Axis:
        lists = self._lists(entry, path)
        if len({len(settings) for settings in lists.values()}) > 1:
            lengths = ", ".join(f"{key} {len(settings)}" for key, settings in lists.items())
            raise self.document.error(path, f"lists of a zip group differ in length: {lengths}")
        columns = zip(*lists.values(), strict=True)
        return tuple(dict(zip(lists, column, strict=True)) for column in columns)

    def _override(self, entry: Any, path: KeyPath) -> Rule:
        rule = self.document.mapping(entry, path, ("when", "set"))
        sets = self.document.mapping(rule.get("set"), (*path, "set"), CELL_KEYS)
        when = self._lists(rule.get("when"), (*path, "when"))
        return Rule(when, self._single(sets, (*path, "set")), path)

    def _lists(self, entry: Any, path: KeyPath) -> dict[str, list[Setting]]:
        """What each key can be; a single value counts as a list of one."""
        lists: dict[str, list[Setting]] = {}
        for key, given in self.document.mapping(entry, path, (*CELL_KEYS, SEEDS)).items():
            place = (*path, key)
            name, values = key, given if isinstance(given, list) else [given]
            if key == SEEDS:
                if type(given) is not int or given < 1:
                    raise self.document.error(place, f"seeds: expected a number, found {given!r}")
                # one more than a sweep may have is refused as well as a billion more
                name, values = "seed", list(range(min(given, MAX_CELLS + 1)))
            if not values or name in lists:
                reason = "give 'seed' or 'seeds', not both" if values else "the list is empty"
                raise self.document.error(place, f"{key}: {reason}")
            lists[name] = [Setting(value, (*place, i)) for i, value in enumerate(values)]
        return lists

    def _single(self, entry: Mapping[str, Any], path: KeyPath) -> dict[str, Setting]:
        for key, value in entry.items():
            if isinstance(value, list):
                text = f"{key}: lists of values belong under 'matrix:'"
                raise self.document.error((*path, key), text)
        return {key: Setting(value, (*path, key)) for key, value in entry.items()}
