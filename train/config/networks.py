"""How a config names its network: ours, of keras.applications, or a function in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from train.errors import unknown

#: ``conv1``: a first convolution of this name, behind the layer ``scale``. ``convolutions``:
#: kernels of rank 4, none of them depthwise. ``residual branches``: they end in a normalisation
#: whose gamma can start at 0. ``batch norm``: places where normalisation stands, or may stand.
Feature = Literal["conv1", "convolutions", "residual branches", "batch norm"]
_CONVOLUTIONAL: frozenset[Feature] = frozenset({"conv1", "convolutions", "batch norm"})
#: Those built in; all others are a researcher's own or of keras.applications.
NETWORKS: Mapping[str, frozenset[Feature]] = {
    "linear": frozenset(),
    "mlp": frozenset({"batch norm"}),
    "cnn": _CONVOLUTIONAL,
    "resnet_mini": _CONVOLUTIONAL | {"residual branches"},
    "resnet50": frozenset({"convolutions", "residual branches", "batch norm"}),
}
APPLICATIONS = "keras.applications."
#: Of Keras 2.15, each a function that builds a network.
IN_APPLICATIONS = (
    "ConvNeXtBase", "ConvNeXtLarge", "ConvNeXtSmall", "ConvNeXtTiny", "ConvNeXtXLarge",
    "DenseNet121", "DenseNet169", "DenseNet201", "EfficientNetB0", "EfficientNetB1",
    "EfficientNetB2", "EfficientNetB3", "EfficientNetB4", "EfficientNetB5", "EfficientNetB6",
    "EfficientNetB7", "EfficientNetV2B0", "EfficientNetV2B1", "EfficientNetV2B2",
    "EfficientNetV2B3", "EfficientNetV2L", "EfficientNetV2M", "EfficientNetV2S",
    "InceptionResNetV2", "InceptionV3", "MobileNet", "MobileNetV2", "MobileNetV3Large",
    "MobileNetV3Small", "NASNetLarge", "NASNetMobile", "RegNetX002", "RegNetX004", "RegNetX006",
    "RegNetX008", "RegNetX016", "RegNetX032", "RegNetX040", "RegNetX064", "RegNetX080",
    "RegNetX120", "RegNetX160", "RegNetX320", "RegNetY002", "RegNetY004", "RegNetY006",
    "RegNetY008", "RegNetY016", "RegNetY032", "RegNetY040", "RegNetY064", "RegNetY080",
    "RegNetY120", "RegNetY160", "RegNetY320", "ResNet101", "ResNet101V2", "ResNet152",
    "ResNet152V2", "ResNet50", "ResNet50V2", "ResNetRS101", "ResNetRS152", "ResNetRS200",
    "ResNetRS270", "ResNetRS350", "ResNetRS420", "ResNetRS50", "VGG16", "VGG19", "Xception",
)  # fmt: skip
#: Shorter side in pixels of the smallest images, where it is not that of all others of their kind.
_SMALLEST_SIDES = {
    "cnn": 6, "resnet50": 32, "keras.applications.InceptionResNetV2": 75,
    "keras.applications.InceptionV3": 75, "keras.applications.Xception": 71,
}  # fmt: skip
#: Folder of the sweep's results that holds the files of its networks.
MODELS = "models"
_HASHED = re.compile(r"(.+)@([0-9a-f]{64})")
#: No folder: the hash names the content. No colon: Apptainer splits binds there.
_FUNCTION = re.compile(r"([^/:@]+\.py):(\w+)")


@dataclass(frozen=True)
class NetworkSource:
    """Where a network comes from."""

    name: str  # of the network; in a file, of the function that builds it
    file_name: str | None = None  # None: built in, or of keras.applications
    sha256: str | None = None  # of the file


def split_hash(text: str) -> tuple[str, str | None]:
    """``FILE@SHA256`` as its two parts; None for a name without a hash."""
    match = _HASHED.fullmatch(text)
    return (match[1], match[2]) if match else (text, None)


@lru_cache(1024)
def parse_model(text: str) -> NetworkSource:
    """The network that ``model: text`` of a config names.

    Raises:
        ValueError: it has none of the three forms, or keras.applications has no such network.
    """
    if text in NETWORKS:
        return NetworkSource(text)
    if text.startswith(APPLICATIONS) and (name := text.removeprefix(APPLICATIONS)).isidentifier():
        if name in IN_APPLICATIONS:
            return NetworkSource(name)
        raise ValueError(unknown("model of keras.applications", name, IN_APPLICATIONS))
    written, sha256 = split_hash(text)
    function = _FUNCTION.fullmatch(written)
    if sha256 and function and written.isprintable() and function[2].isidentifier():
        return NetworkSource(function[2], function[1], sha256)
    raise ValueError(
        f"unknown model {text!r}; expected {', '.join(NETWORKS)}, {APPLICATIONS}NAME or "
        "FILE.py:FUNCTION, which a config holds as FILE.py:FUNCTION@SHA256 without a folder"
    )


def smallest_side(model: str) -> int:
    return _SMALLEST_SIDES.get(model, 32 if model.startswith(APPLICATIONS) else 1)


def model_label(text: str) -> str:
    """For people: resnet_mini, MobileNetV2, vit; vit:small where the function is not ``build``."""
    source = parse_model(text)
    if source.file_name is None:
        return source.name
    stem = source.file_name.removesuffix(".py")
    return stem if source.name == "build" else f"{stem}:{source.name}"


@lru_cache(1024)
def model_slug(text: str) -> str:
    """The label in [a-z0-9_], for names of files."""
    return re.sub(r"[^a-z0-9_]+", "_", model_label(text).lower()).strip("_")[:24] or "network"


def model_file(model: str, *cell_folders: Path) -> Path:
    """The copy of a network's file that the cells of a sweep share: the first one that is there."""
    name = f"{parse_model(model).sha256}.py"
    copies = [folder.parent / MODELS / name for folder in cell_folders]
    return next((copy for copy in copies if copy.exists()), copies[0])
