"""How a config names its network: ours, of keras.applications, or a function in a file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

BUILT_IN = ("linear", "mlp", "cnn", "resnet_mini", "resnet50")
APPLICATIONS = "keras.applications."
#: Folder of the sweep's results that holds the files of its networks.
MODELS = "models"
_HASHED = re.compile(r"(.+)@([0-9a-f]{64})")
#: No folder: the hash names the content. No colon: Apptainer splits binds there.
_FUNCTION = re.compile(r"([^/:@]+\.py):(\w+)")


@dataclass(frozen=True)
class NetworkSource:
    """Where a network comes from."""

    kind: Literal["built_in", "applications", "file"]
    name: str  # of the network; in a file, of the function that builds it
    file_name: str | None = None
    sha256: str | None = None  # of the file


def split_hash(text: str) -> tuple[str, str | None]:
    """``FILE@SHA256`` as its two parts; None for a name without a hash."""
    found = _HASHED.fullmatch(text)
    return (found[1], found[2]) if found else (text, None)


@lru_cache(1024)
def parse_model(text: str) -> NetworkSource:
    """The network that ``model: text`` of a config names.

    Raises:
        ValueError: it has none of the three forms.
    """
    if text in BUILT_IN:
        return NetworkSource("built_in", text)
    if text.startswith(APPLICATIONS) and (name := text.removeprefix(APPLICATIONS)).isidentifier():
        return NetworkSource("applications", name)
    written, sha256 = split_hash(text)
    function = _FUNCTION.fullmatch(written)
    if sha256 and function and written.isprintable() and function[2].isidentifier():
        return NetworkSource("file", function[2], function[1], sha256)
    raise ValueError(
        f"unknown model {text!r}; expected {', '.join(BUILT_IN)}, {APPLICATIONS}NAME or "
        "FILE.py:FUNCTION, which a config holds as FILE.py:FUNCTION@SHA256 without a folder"
    )


def model_label(text: str) -> str:
    """For people: resnet_mini, MobileNetV2, vit; vit:small where the function is not ``build``."""
    source = parse_model(text)
    if source.file_name is None:
        return source.name
    stem = source.file_name.removesuffix(".py")
    return stem if source.name == "build" else f"{stem}:{source.name}"


def model_slug(text: str) -> str:
    """The label in [a-z0-9_], for names of files."""
    return re.sub(r"[^a-z0-9_]+", "_", model_label(text).lower()).strip("_")[:24] or "network"


def model_file(source: NetworkSource, cell_folder: Path) -> Path:
    """The copy of a network's file that the cells of a sweep share."""
    return cell_folder.parent / MODELS / f"{source.sha256}.py"
