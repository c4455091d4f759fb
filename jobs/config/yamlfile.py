"""YAML files of people: read strictly, with a line for every value and every complaint."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.constructor import ConstructorError, SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from train.errors import ConfigError, expanded, unknown

MAX_BYTES = 1_000_000
SUFFIXES = (".yaml", ".yml")

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


def names_in(folder: Path) -> list[str]:
    try:
        return sorted(path.stem for path in folder.glob("[!.]*") if path.suffix in SUFFIXES)
    except OSError:  # a folder that this user may not enter holds none
        return []


def find_file(kind: str, name_or_path: str, folder: Path, words: Sequence[str] = ()) -> Path:
    """``kind``: what the file is called in messages; ``words``: names that stand for no file.

    Raises:
        ConfigError: there is none; with the names that there are, and the nearest.
    """
    paths = [folder / f"{name_or_path}{suffix}" for suffix in SUFFIXES]
    if os.sep in name_or_path or name_or_path.endswith(SUFFIXES):
        paths = [expanded(name_or_path)]
    for path in paths:
        if path.exists():
            return path
    raise ConfigError(
        f"{unknown(kind, name_or_path, [*words, *names_in(folder)])}. "
        f"A {kind} is a file under {folder}, or any path that ends in .yaml"
    )


@dataclass(frozen=True)
class Document:
    """A mapping read from a file; ``root`` is the same mapping as ruamel.yaml parsed it."""

    source: Path
    value: dict[str, Any]
    root: Node

    def line(self, path: KeyPath) -> int:
        """Line (from 1) of the key or item at ``path``, or of the nearest thing around it."""
        line, node = 0, self.root
        for step in path:
            inner: dict[Any, tuple[Node, Node]] = {}
            if isinstance(node, MappingNode):
                inner = {key.value: (key, value) for key, value in node.value}
            elif isinstance(node, SequenceNode):
                inner = {index: (item, item) for index, item in enumerate(node.value)}
            # what is not there may be the kind of a schedule, a step of pydantic's places
            if step in inner:
                line, node = inner[step][0].start_mark.line, inner[step][1]
        return line + 1

    def error(self, path: KeyPath, text: str) -> ConfigError:
        return ConfigError(f"{self.source}:{self.line(path)}: {text}")

    def mapping(self, value: Any, path: KeyPath, known: Collection[str]) -> dict[str, Any]:
        """The ``value`` written at ``path``.

        Raises:
            ConfigError: it is no mapping, it is empty, or it has a key that is not known.
        """
        if not isinstance(value, dict) or not value:
            name = ".".join(str(step) for step in path)
            raise self.error(path, f"{name}: expected 'key: value', found {value!r}")
        for key in value:
            if key not in known:
                raise self.error((*path, key), unknown("key", key, known))
        return value

    def checked(self, model: type[Model], value: Mapping[str, Any], path: KeyPath = ()) -> Model:
        """The mapping ``value``, written at ``path``, as an instance of ``model``.

        It is checked as JSON, where strict means: no text for a number, no number for a truth
        value, but a list for a tuple.

        Raises:
            ConfigError: an unknown key, a missing one, a value that does not fit.
        """
        try:
            return model.model_validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            place, text = problem_of(model, value, error)
            raise self.error((*path, *place), text) from error


def load_yaml(path: Path) -> Document:
    """Read one file that holds one mapping.

    Raises:
        ConfigError: it cannot be read; too large, not UTF-8, not YAML, not a mapping, a key given
            twice, a key that is no text, or a value that JSON does not have.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes, so not a file of ours")
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    try:
        root = yaml.compose(data)
        if not isinstance(root, MappingNode) or not root.value:
            raise YAMLError("expected 'key: value' lines")
        value = yaml.constructor.construct_document(root)
        json.dumps(value)  # what JSON cannot say is no value of ours: a set, an alias of itself
        return Document(path, value, root)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{path}:{line}: not YAML: {reason}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deep") from error
    except (YAMLError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error


class _Constructor(SafeConstructor):
    """Makes plain values; keys are names."""

    def check_mapping_key(
        self, node: Node, key_node: Node, mapping: Any, key: Any, value: Any
    ) -> bool:
        if not isinstance(key, str):
            problem = f"expected a name as key, found {key!r}"
            raise ConstructorError(None, None, problem, key_node.start_mark)
        return bool(super().check_mapping_key(node, key_node, mapping, key, value))

    def construct_yaml_int(self, node: Any) -> Any:
        """Account 0123 and 0x10 are names: only decimal numbers without a leading zero are read."""
        plain = re.fullmatch(r"[-+]?(0|[1-9][\d_]*)", node.value)
        return super().construct_yaml_int(node) if plain else node.value


_TAG = "tag:yaml.org,2002:"
_Constructor.add_constructor(f"{_TAG}int", _Constructor.construct_yaml_int)
_Constructor.add_constructor(f"{_TAG}timestamp", SafeConstructor.construct_yaml_str)


def problem_of(
    model: type[BaseModel], value: Iterable[str], error: ValidationError
) -> tuple[KeyPath, str]:
    """The first of pydantic's findings about a ``model``: where it is, and a sentence that says
    where, what was expected and what was found.

    ``value``: the keys that were given; a rule about several keys has no place of its own, so its
    place is the key that its words name first.
    """
    first = error.errors()[0]
    place, kind = first["loc"], first["type"]
    shown, text = place, first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if kind == "extra_forbidden":
        shown = place[:-1]
        text = unknown("key", place[-1], _keys_at(model, shown))
    elif kind not in ("value_error", "missing"):
        found = json.dumps(first["input"], ensure_ascii=False, default=str)[:200]
        text = f"{text}, found {found}"
    if shown:
        text = f"{'.'.join(map(str, shown))}: {text}"
    named = sorted((key for key in value if key in text), key=text.find)
    return place or tuple(named[:1]), text


def _keys_at(model: type[BaseModel], place: KeyPath) -> list[str]:
    """The keys of ``model``, or of a part of it, whose kind the place may end with."""
    parts = parts_of(model.model_fields[str(place[0])].annotation) if place else [model]
    named = [one for one in parts if "name" in one.model_fields]
    kinds = [one for one in named if one.model_fields["name"].default in place]
    return [key for one in kinds or parts for key in one.model_fields]


def parts_of(annotation: Any) -> list[type[BaseModel]]:
    """The models among the alternatives of a field: a schedule is one of four, a number none."""
    choices = (annotation, *get_args(annotation))
    return [one for one in choices if isinstance(one, type) and issubclass(one, BaseModel)]
