"""The nearest valid name, for messages about a misspelt one."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from train.errors import ConfigError


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name most like ``word``, whatever its case; None when none is alike."""
    names = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), names, n=1, cutoff=0.5)
    return names[found[0]] if found else None


def unknown(kind: str, word: object, known: Iterable[str]) -> str:
    """One sentence: what was found, the nearest valid name, all valid names."""
    names = list(known)
    near = nearest(str(word), names)
    hint = f"did you mean {near!r}? " if near else ""
    return f"unknown {kind} {word!r}; {hint}known: {', '.join(names) or '(none)'}"


MAX_BYTES = 1_000_000
#: Values after aliases are followed: nine lines of aliases can stand for a billion.
MAX_VALUES = 100_000
MAX_DEPTH = 30

KeyPath = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_MERGE = _TAG + "merge"
# a point or an exponent makes a float; 010 is neither int nor float, so it stays text
_DIGITS = "[0-9][0-9_]*"
_EXPONENT = "[eE][-+]?[0-9]+"
_FLOAT = rf"(?:{_DIGITS}\.[0-9_]*|\.{_DIGITS})(?:{_EXPONENT})?|{_DIGITS}{_EXPONENT}"


@dataclass(frozen=True)
class Document:
    """A mapping read from a file, with the line of each key and list item."""

    source: Path
    value: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> int:
        """Line (from 1) of the value at ``path``, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def error(self, path: KeyPath, text: str) -> ConfigError:
        return ConfigError(f"{self.source}:{self.line(path)}: {text}")


def load_yaml(path: Path) -> Document:
    """Read one file that holds one mapping.

    Raises:
        ConfigError: unreadable, too large, not UTF-8, not YAML, not a mapping, a key given twice,
            a key that is no text, a tag, or aliases that stand for too much.
    """
    text = _read(path)
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            raise ConfigError(f"{path}:1: the file is empty; expected keys and values")
        if not isinstance(node, yaml.MappingNode):
            found = _shown(node)
            raise ConfigError(f"{path}:{_line(node)}: expected 'key: value' lines, found {found}")
        reader = _Reader(path)
        value = reader.mapping(node, ())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {_reason(error)}") from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested deeper than {MAX_DEPTH} levels") from error
    return Document(path, value, reader.lines)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_BYTES:,} bytes, so not a file of ours")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text: {error.reason}, byte {error.start}") from error


def _reason(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    text = ", ".join(parts)
    return f"{text}; indent with spaces, not tabs" if "'\\t'" in text else text


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class _Loader(yaml.SafeLoader):
    """PyYAML's parser with the plain scalars of YAML 1.2 instead of 1.1."""

    yaml_implicit_resolvers: ClassVar[dict[str | None, list[tuple[str, re.Pattern[str]]]]] = {  # type: ignore[misc]
        None: [
            (_TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$")),
            (_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
            (_TAG + "int", re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$")),
            (_TAG + "float", re.compile(rf"^[-+]?(?:{_FLOAT})$")),
            (_TAG + "float", re.compile(r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")),
            (_MERGE, re.compile(r"^<<$")),
        ]
    }


_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "str": str,
    _TAG + "null": lambda _: None,
    _TAG + "bool": lambda text: {"true": True, "false": False}[text.lower()],
    _TAG + "int": lambda text: int(text.replace("_", "")),
    _TAG + "float": lambda text: float(re.sub(r"_|\.(?=inf|nan)", "", text.lower())),
}


class _Reader:
    """Turns the node graph into plain values and notes lines on the way."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.lines: dict[KeyPath, int] = {}
        self._values = 0

    def _refuse(self, node: yaml.Node, text: str) -> ConfigError:
        return ConfigError(f"{self.source}:{_line(node)}: {text}")

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._refuse(node, f"aliases stand for more than {MAX_VALUES:,} values")
        if len(path) > MAX_DEPTH:
            raise self._refuse(node, f"nested deeper than {MAX_DEPTH} levels (an alias of itself?)")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self._item(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _item(self, node: yaml.Node, path: KeyPath) -> Any:
        self.lines[path] = _line(node)
        return self.value(node, path)

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return _SCALARS[node.tag](node.value)
        except (KeyError, ValueError, TypeError):
            tag = node.tag.replace(_TAG, "!!")
            text = f"{str(node.value)[:80]!r} cannot be read as {tag}: plain values only"
            raise self._refuse(node, text) from None

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        """Keys of this mapping, over those it merges in with ``<<``."""
        if node.tag != _TAG + "map":
            raise self._refuse(node, f"the tag {node.tag} is not allowed: plain values only")
        merges = [(key, value) for key, value in node.value if key.tag == _MERGE]
        if len(merges) > 1:
            raise self._refuse(merges[1][0], "'<<' is there twice; to merge two: <<: [*a, *b]")
        result = self._merged(merges[0][1], path) if merges else {}
        own: dict[str, int] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                continue
            name = self._key(key)
            if name in own:
                raise self._refuse(key, f"the key {name!r} is there twice (also line {own[name]})")
            own[name] = self.lines[(*path, name)] = _line(key)
            result[name] = self.value(value, (*path, name))
        return result

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode) or node.tag != _TAG + "str":
            raise self._refuse(node, f"expected a name as key, found {_shown(node)}")
        return str(node.value)

    def _merged(self, node: yaml.Node, path: KeyPath) -> dict[str, Any]:
        """What ``<<`` brings in: of several mappings, the first that has a key wins."""
        several = node.value if isinstance(node, yaml.SequenceNode) else [node]
        result: dict[str, Any] = {}
        for one in reversed(several):
            if not isinstance(one, yaml.MappingNode):
                raise self._refuse(node, "'<<' takes a mapping, or a list of mappings")
            # through value(), so that merges count towards the bounds
            result |= self.value(one, path)
        return result


def _shown(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value)
    return "a mapping" if isinstance(node, yaml.MappingNode) else "a list"


SUFFIXES = (".yaml", ".yml")


def names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*") if path.suffix in SUFFIXES)


def find_file(kind: str, name_or_path: str, folder: Path, words: Sequence[str] = ()) -> Path:
    """``kind``: what the file is called in messages; ``words``: names that stand for no file.

    Raises:
        ConfigError: there is none; with the names that there are, and the nearest.
    """
    if os.sep in name_or_path or name_or_path.endswith(SUFFIXES):
        path = Path(name_or_path).expanduser()
        if not path.exists():
            known = ", ".join(names_in(folder)) or "(none)"
            raise ConfigError(f"no {kind} file {path}; {kind}s known by name: {known}")
        return path
    for suffix in SUFFIXES:
        path = folder / f"{name_or_path}{suffix}"
        if path.exists():
            return path
    raise ConfigError(
        f"{unknown(kind, name_or_path, [*words, *names_in(folder)])}. "
        f"A {kind} is a file under {folder}, or any path that ends in .yaml"
    )
