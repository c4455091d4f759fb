"""Files that cells name by their content: networks, weights, arrays."""

from __future__ import annotations

import contextlib
import hashlib
import symtable
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

from jobs.cell.container import digest_of, mark_of
from train.config.datasets import ARRAYS_PREFIX, place_of
from train.config.networks import NETWORKS
from train.errors import ConfigError, unknown

#: Keys of a cell that may name a file.
FILE_KEYS = ("model", "pretrained", "dataset")


@dataclass
class NamedFiles:
    """The files of one sweep, each read once."""

    sweeps: Path  # where the relative path of a network begins: the folder of the sweep file
    data: Path  # ... and those of weights and arrays: the folder of the data sets
    networks: dict[str, bytes] = field(default_factory=dict)  # sha256 -> content
    _read: dict[tuple[str, str, bool], str] = field(default_factory=dict)

    def in_config(self, key: str, fields: Mapping[str, Any]) -> Any:
        """The value of a key as configs have it, a file with its sha256. ``fields``: of a config.

        Raises:
            ConfigError: the file cannot be read here, or builds no such network.
        """
        value, own = fields[key], fields["model"] not in NETWORKS
        if not isinstance(value, str):
            return value
        if (key, value, own) not in self._read:
            self._read[key, value, own] = self._named(key, value, own)
        return self._read[key, value, own]

    def _named(self, key: str, value: str, own: bool) -> str:
        if key == "model" and ".py:" in value:
            return self._network(value)
        if key == "pretrained" and own:
            return self._with_hash(value)
        if key == "dataset" and value.startswith(ARRAYS_PREFIX):
            return ARRAYS_PREFIX + self._with_hash(value.removeprefix(ARRAYS_PREFIX))
        return value

    def _with_hash(self, written: str) -> str:
        expected = "a file. A relative path begins in the data folder, DATA=DIR"
        with _opened(place_of(written, self.data), expected) as file:
            return f"{written}@{digest_of(file, mark_of(file))}"

    def _network(self, written: str) -> str:
        """Its file is parsed here, and never run."""
        path, _, function = written.rpartition(":")
        expected = "a file with a network. A relative path begins in the folder of the sweep file"
        with _opened(place := place_of(path, self.sweeps), expected) as file:
            source = file.read()
        try:
            # of bytes, as ranks compile it: a mark or a comment may name the encoding
            table = symtable.symtable(source, str(place), "exec")  # type: ignore[arg-type]
        except (SyntaxError, ValueError) as error:
            line, why = getattr(error, "lineno", None) or 1, getattr(error, "msg", error)
            raise ConfigError(f"{place}:{line}: no Python: {why}") from error
        names = [s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()]
        if function not in names:
            raise ConfigError(f"{place}: {unknown('function', function, names)}")
        sha256 = hashlib.sha256(source).hexdigest()
        self.networks[sha256] = source
        return f"{place.name}:{function}@{sha256}"


@contextlib.contextmanager
def _opened(place: Path, expected: str) -> Iterator[BufferedReader]:
    try:
        with place.open("rb") as file:
            yield file
    except OSError as error:
        text = f"{place} found unreadable ({error.strerror}), expected {expected}"
        raise ConfigError(text) from error
