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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError, create_model

from jobs.config.techniques import KINDS, PARAMETERS, spelled_out
from jobs.config.yamlfile import Document, KeyPath, problem_of, strictly, unknown
from train.config.datasets import DATASETS, FOLDER_PREFIX
from train.config.frozen import Frozen
from train.config.run import RunConfig
from train.config.technique import Technique

_CONTRACT = {k: field for k, field in RunConfig.model_fields.items() if k != "schema_version"}
#: Keys of a cell. All but the two batches and the technique's parameters are RunConfig's own.
CELL_KEYS = (*_CONTRACT, "global_batch", "base_batch", *PARAMETERS)
#: What a cell has where the file does not say it.
DEFAULTS = {k: f.default for k, f in _CONTRACT.items() if not f.is_required()} | {"seed": 0}
#: ``seeds: 3`` stands for ``seed: [0, 1, 2]`` where lists are crossed.
SEEDS = "seeds"
TOP_LEVEL = (
    *("name", "title", "cores_per_rank"),
    *CELL_KEYS,
    *("matrix", "zip", "exclude", "include", "override"),
)
MAX_CELLS = 10_000

_FIELDS = {key: Technique.model_fields[key] for key in PARAMETERS} | _CONTRACT
_COUNTS = ("global_batch", "base_batch", SEEDS, "cores_per_rank")
_TYPES: dict[str, Any] = {
    "name": (Annotated[str, Field(pattern="^[a-z0-9_]+$")], None),
    "title": (str, None),
    **{key: (Annotated[field.annotation, field], None) for key, field in _FIELDS.items()},
    **dict.fromkeys(_COUNTS, (Annotated[int, Field(ge=1)], None)),
}
#: One key and its value, as the contract has it; no key is required here.
_OneKey: type[Frozen] = create_model("_OneKey", __base__=Frozen, **_TYPES)


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

    when: Mapping[str, Sequence[Any]]
    sets: Settings
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
    include: Mapping[KeyPath, tuple[Axis, ...]]  # by the entry's place in the file
    override: tuple[Rule, ...]

    def all_settings(self) -> list[Settings]:
        """What cells share and vary, in the order of the file's parts."""
        axes = (*self.axes, *(axis for axes in self.include.values() for axis in axes))
        return [self.common, *(part for axis in axes for part in axis)]


def value_problem(key: str, value: Any, techniques: Collection[str]) -> str | None:
    """Why ``key`` cannot have ``value``, as a sentence; None when it can.

    null unsets a key, so any key takes it. A kind without its name changes numbers of the
    technique's own kind, and is checked together with these.
    """
    if value is None:
        return None
    value = spelled_out(key, value)
    if key in KINDS and "name" not in value:
        return None
    if key == "technique":
        return None if value in list(techniques) else unknown(key, value, techniques)
    try:
        strictly(_OneKey, {key: value})
    except ValidationError as error:
        return problem_of(_OneKey, error)[1]
    if key != "dataset" or value in DATASETS or value.partition(FOLDER_PREFIX)[2]:
        return None
    return unknown(key, value, (*DATASETS, f"{FOLDER_PREFIX}PATH"))


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
        top = self.document.mapping(self.document.value, (), TOP_LEVEL)
        name = self._one("name", top.get("name") or self.document.source.stem, ("name",)).value
        title = self._one("title", top.get("title"), ("title",)).value or name
        common = {key: self._one(key, top[key], (key,)) for key in top if key in CELL_KEYS}
        cores = self._one("cores_per_rank", top.get("cores_per_rank"), ("cores_per_rank",))
        return SweepFile(
            document=self.document,
            name=name,
            title=" ".join(title.split()),
            cores_per_rank=cores.value,
            common=common,
            axes=tuple(self._axes(common)),
            exclude=tuple(
                Rule(self._when(rule, path), {}, path) for rule, path in self._entries("exclude")
            ),
            include={
                path: tuple(self._crossed(entry, path)) for entry, path in self._entries("include")
            },
            override=tuple(self._override(rule, path) for rule, path in self._entries("override")),
        )

    def _entries(self, part: str) -> Iterator[tuple[Any, KeyPath]]:
        """The items of a list; one alone counts as a list of one."""
        value = self.document.value.get(part)
        if isinstance(value, list):
            yield from ((item, (part, i)) for i, item in enumerate(value))
        elif value is not None:
            yield value, (part,)

    def _axes(self, common: Settings) -> Iterator[Axis]:
        """Matrix lists and zip groups; a key may vary in one place only."""
        seen = dict(common)
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
        """One axis per key; a single value counts as a list of one."""
        lists = self.document.mapping(entry, path, (*CELL_KEYS, SEEDS))
        if SEEDS in lists and "seed" in lists:
            raise self.document.error((*path, SEEDS), "give 'seed' or 'seeds', not both")
        for key, value in lists.items():
            if key == SEEDS:
                count = self._one(SEEDS, value, (*path, key)).value or 1
                seeds = range(min(count, MAX_CELLS + 1))
                yield tuple({"seed": Setting(seed, (*path, key, 0))} for seed in seeds)
            else:
                yield tuple({key: setting} for setting in self._values(key, value, (*path, key)))

    def _zipped(self, entry: Any, path: KeyPath) -> Axis:
        group = self.document.mapping(entry, path, CELL_KEYS)
        lists = {key: self._values(key, value, (*path, key)) for key, value in group.items()}
        if len({len(values) for values in lists.values()}) > 1:
            lengths = ", ".join(f"{key} {len(values)}" for key, values in lists.items())
            raise self.document.error(path, f"lists of a zip group differ in length: {lengths}")
        columns = zip(*lists.values(), strict=True)
        return tuple(dict(zip(lists, column, strict=True)) for column in columns)

    def _override(self, entry: Any, path: KeyPath) -> Rule:
        rule = self.document.mapping(entry, path, ("when", "set"))
        place = (*path, "set")
        sets = self.document.mapping(rule.get("set"), place, CELL_KEYS)
        settings = {key: self._one(key, value, (*place, key)) for key, value in sets.items()}
        return Rule(self._when(rule.get("when"), (*path, "when")), settings, path)

    def _when(self, entry: Any, path: KeyPath) -> dict[str, list[Any]]:
        lists = self.document.mapping(entry, path, CELL_KEYS)
        return {
            key: [setting.value for setting in self._values(key, value, (*path, key))]
            for key, value in lists.items()
        }

    def _values(self, key: str, value: Any, path: KeyPath) -> list[Setting]:
        values = value if isinstance(value, list) else [value]
        if not values:
            raise self.document.error(path, f"{key}: the list is empty, so there would be no cell")
        return [self._one(key, item, (*path, i)) for i, item in enumerate(values)]

    def _one(self, key: str, value: Any, path: KeyPath) -> Setting:
        if isinstance(value, list):
            raise self.document.error(path, f"{key}: lists of values belong under 'matrix:'")
        if problem := value_problem(key, value, self.techniques):
            raise self.document.error(path, problem)
        return Setting(value, path)
