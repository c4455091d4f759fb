"""YAML files of people: read strictly, with a line for every value and every complaint."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import ConstructorError, RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import Node, ScalarNode

from train.errors import ConfigError

MAX_BYTES = 1_000_000
#: Values after aliases are followed: nine lines of aliases can stand for a billion.
MAX_VALUES = 100_000
MAX_DEPTH = 30
SUFFIXES = (".yaml", ".yml")

KeyPath = tuple[str | int, ...]
Model = TypeVar("Model", bound=BaseModel)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like ``word``, whatever its case; None when none is alike."""
    names = {name.lower(): name for name in known}
    alike = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return names[alike[0]] if alike else None


def unknown(kind: str, word: object, known: Iterable[str]) -> str:
    """One sentence: what was found, the nearest valid name, all valid names."""
    names = list(known)
    near = nearest(str(word), names)
    hint = f"did you mean {near!r}? " if near else ""
    return f"unknown {kind} {word!r}; {hint}known: {', '.join(names) or '(none)'}"


def names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*") if path.suffix in SUFFIXES)


def find_file(kind: str, name_or_path: str, folder: Path, words: Sequence[str] = ()) -> Path:
    """``kind``: what the file is called in messages; ``words``: names that stand for no file.

    Raises:
        ConfigError: there is none; with the names that there are, and the nearest.
    """
    paths = [folder / f"{name_or_path}{suffix}" for suffix in SUFFIXES]
    if os.sep in name_or_path or name_or_path.endswith(SUFFIXES):
        paths = [Path(name_or_path).expanduser()]
    for path in paths:
        if path.exists():
            return path
    raise ConfigError(
        f"{unknown(kind, name_or_path, [*words, *names_in(folder)])}. "
        f"A {kind} is a file under {folder}, or any path that ends in .yaml"
    )


@dataclass(frozen=True)
class Document:
    """A mapping read from a file; ``tree`` is the same mapping as ruamel.yaml holds it."""

    source: Path
    value: dict[str, Any]
    tree: CommentedMap

    def line(self, path: KeyPath) -> int:
        """Line (from 1) of the key or item at ``path``, or of the nearest thing around it."""
        line, node = 0, self.tree
        for step in path:
            # what is not there may be the kind of a schedule, a step of pydantic's places
            if isinstance(node, CommentedMap | CommentedSeq) and step in (node.lc.data or ()):
                line, node = node.lc.data[step][0], node[step]
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

        Raises:
            ConfigError: an unknown key, a missing one, a value that does not fit.
        """
        try:
            return strictly(model, value)
        except ValidationError as error:
            place, text = problem_of(model, error)
            raise self.error((*path, *(place or first_named(value, text))), text) from error


def load_yaml(path: Path) -> Document:
    """Read one file that holds one mapping.

    Raises:
        ConfigError: unreadable, too large, not UTF-8, not YAML, not a mapping, a key given twice,
            a key that is no text, a tag, or aliases that stand for too much.
    """
    yaml = YAML()
    yaml.Constructor = _Constructor
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes, so not a file of ours")
        tree = yaml.load(data)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"{path}:{line}: not YAML: {reason}") from error
    except (YAMLError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, CommentedMap) or not tree:
        shown = "nothing" if tree is None else str(tree)[:80]
        raise ConfigError(f"{path}:1: expected 'key: value' lines, found {shown}")
    document = Document(path, {}, tree)
    document.value.update(_plain(document, tree, (), count()))
    return document


def _plain(document: Document, node: Any, path: KeyPath, counted: Iterator[int]) -> Any:
    """What stands at ``path`` as plain values, every alias followed."""
    if next(counted) >= MAX_VALUES:
        raise document.error(path, f"aliases stand for more than {MAX_VALUES:,} values")
    if len(path) > MAX_DEPTH:
        raise document.error(path, f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(node, CommentedSeq):
        return [_plain(document, item, (*path, i), counted) for i, item in enumerate(node)]
    if not isinstance(node, CommentedMap):
        return node
    for key in node:
        if not isinstance(key, str):
            raise document.error((*path, key), f"expected a name as key, found {key!r}")
    return {key: _plain(document, item, (*path, key), counted) for key, item in node.items()}


class _Constructor(RoundTripConstructor):
    """Makes mappings and lists that know their lines, and plain scalars."""

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        kind = str(node.tag).removeprefix("tag:yaml.org,2002:")
        if isinstance(node, ScalarNode) and kind in _SCALARS:
            # ruamel marks with BEL where it may fold the text again
            return _SCALARS[kind](node.value.replace("\a", "") if node.style == ">" else node.value)
        problem = "an alias of itself" if node in self.recursive_objects else None
        if kind not in ("map", "seq"):
            problem = f"the tag {node.tag} is not allowed: plain values only"
        if problem:
            raise ConstructorError(None, None, problem, node.start_mark)
        return super().construct_object(node, deep)


def _integer(text: str) -> int | str:
    """What only looks like a number (010, 0x10) stays text."""
    digits = text.replace("_", "")
    return int(digits) if re.fullmatch(r"[-+]?(0|[1-9]\d{0,99})", digits) else text


_SCALARS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("str", "timestamp", "value"), str),
    "null": lambda _: None,
    "bool": lambda text: {"true": True, "false": False}.get(text.lower(), text),
    "int": _integer,
    "float": lambda text: float(re.sub(r"_|\.(?=inf|nan)", "", text.lower())),
}


def strictly(model: type[Model], value: Mapping[str, Any]) -> Model:
    """As JSON, where strict means: no text for a number, no number for a truth value."""
    return model.model_validate_json(json.dumps(value), strict=True)


def problem_of(model: type[BaseModel], error: ValidationError) -> tuple[KeyPath, str]:
    """The first of pydantic's findings about a ``model``: where it is, and a sentence that says
    where, what was expected and what was found."""
    first = error.errors()[0]
    place, kind, value = first["loc"], first["type"], first["input"]
    owner, text = place, first["msg"].removeprefix("Value error, ")
    found = f"found {json.dumps(value, ensure_ascii=False, default=str)[:200]}"
    if kind == "extra_forbidden":
        owner = place[:-1]
        text = unknown("key", place[-1], _keys_at(model, owner))
    elif kind in ("literal_error", "union_tag_invalid"):
        limits = first["ctx"]
        names = re.findall("'(.*?)'", limits.get("expected_tags") or limits["expected"])
        text = unknown("value", limits.get("tag", value), names)
    elif kind == "missing":
        text = "this key is missing, and it has no default"
    elif kind in _EXPECTED:
        text = f"expected {_EXPECTED[kind]}, {found}"
    elif kind != "value_error":
        text = f"{text.removeprefix('Input ')}, {found}"
    prefix = ".".join(str(step) for step in owner)
    return place, f"{prefix}: {text}" if prefix else text


#: Where pydantic's words suit JSON better than YAML.
_EXPECTED = {
    "dict_type": "keys and values",
    "float_type": "a number, without quotes",
    "int_type": "a whole number, without quotes",
    "model_type": "keys and values",
    "string_type": "a text, in quotes",
    "tuple_type": "a list, such as [a, b]",
}


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


def first_named(keys: Iterable[str], text: str) -> list[str]:
    """The key that a rule about several keys, which has no place of its own, names first."""
    return sorted((key for key in keys if key in text), key=text.find)[:1]
