"""From the name of a network that is not ours to what its code builds."""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf
from keras.src.backend import RandomGenerator

from train.config.networks import NetworkSource
from train.errors import ConfigError, read_whole
from train.models.layers import stream_of

Shape = tuple[int, int, int]  # height, width, channels
Builder = Callable[[Shape, int], Any]


def load_builder(source: NetworkSource, file: Path | None) -> Builder:
    """The function that builds a network for a shape of images and a number of classes.

    file: the copy of the file that ``source`` names: one module, whose folder is no place that it
    can import from.

    Raises:
        ConfigError: no such network, or the file is another one, or its code fails.
    """
    if source.kind == "applications":
        make = getattr(tf.keras.applications, source.name, None)
        if not callable(make):
            known = ", ".join(name for name in dir(tf.keras.applications) if name[0].isupper())
            raise ConfigError(f"keras.applications has no {source.name}; it has {known}")
        return lambda shape, classes: make(
            weights=None, input_shape=shape, classes=classes, classifier_activation=None
        )
    file = file or Path(source.file_name or "")
    content = checked_content(file, source.sha256)
    module = ModuleType(f"own_network_{source.sha256}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # where dataclasses and AutoGraph look for it
    with code_of(source.file_name or "", file):
        code = compile(content, str(file), "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102  (the network's code is what the cell is about)
    build = getattr(module, source.name, None)
    if not callable(build):
        raise ConfigError(
            f"{source.file_name} has no function {source.name}: expected "
            f"{source.name}(input_shape, classes)"
        )
    return build


def checked_content(file: Path, sha256: str | None) -> bytes:
    """What ``file`` holds, if it has that hash.

    Raises:
        ConfigError: it has another one, or is missing.
    """
    content = read_whole(file)
    found = None if content is None else hashlib.sha256(content).hexdigest()
    if content is None or found != sha256:
        state = "is missing" if found is None else f"has the sha256 {found}"
        raise ConfigError(f"{file} {state}: the config names one with {sha256}")
    return content


@contextmanager
def code_of(label: str, file: Path | None) -> Iterator[None]:
    """An error of the network's code is an error of the request, at a line of its file."""
    try:
        yield
    except (ConfigError, MemoryError, tf.errors.ResourceExhaustedError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(file)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        where = f"{label}, line {lines[-1]}" if lines else label
        alone = " (a network is one file)" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"{where}: {type(error).__name__}: {error}{alone}") from error


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Every initialiser, also one with a seed of its own, draws what depends on ``seed``. What the
    network's code does to global states of randomness ends with it."""
    usual = RandomGenerator._create_seed

    def create(self: RandomGenerator, own: int | None) -> int:
        return stream_of(seed, usual(self, own))

    RandomGenerator._create_seed = create
    tf.keras.utils.set_random_seed(seed)
    try:
        yield
    finally:
        RandomGenerator._create_seed = usual
        tf.keras.utils.set_random_seed(seed)
