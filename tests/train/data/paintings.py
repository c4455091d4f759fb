"""A folder of pictures as people keep them: any size, mode, depth and orientation, two formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

ORIENTATION = 0x0112  # EXIF tag
#: mode and format of one picture after the other; 16-bit grey is what scanners write
KINDS = (
    ("RGB", "jpg"), ("L", "png"), ("RGBA", "png"), ("P", "png"), ("CMYK", "jpg"), ("I;16", "png"),
    ("RGB", "png"), ("L", "jpg"), ("turned", "jpg"),
)  # fmt: skip
COLOURS = ((20, 40, 90), (60, 180, 70), (230, 210, 60), (240, 240, 250))


def paint_folder(folder: Path, counts: Mapping[str, int], seed: int = 0) -> Path:
    """``folder``/<class>/<number>.<format>; brightness and colour tell the class.

    Each class goes through all KINDS in turn and has a colour of its own, with noise.
    """
    random = np.random.default_rng(seed)
    for (name, count), colour in zip(counts.items(), COLOURS, strict=False):
        (folder / name).mkdir(parents=True)
        for index in range(count):
            mode, suffix = KINDS[index % len(KINDS)]
            height, width = random.integers(18, 100, 2)
            noise = random.integers(-20, 21, (height, width, 3))
            pixels = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
            _save(Image.fromarray(pixels), mode, folder / name / f"{index:03d}.{suffix}")
    return folder


def _save(image: Image.Image, mode: str, path: Path) -> None:
    if mode == "I;16":
        grey = np.asarray(image.convert("L"), np.uint16) * 257
        Image.fromarray(grey).save(path)
    elif mode == "turned":
        # stored on its side, with the tag by which viewers put it upright
        tags = Image.Exif()
        tags[ORIENTATION] = 6
        image.transpose(Image.Transpose.ROTATE_90).save(path, exif=tags)
    else:
        image.convert(mode).save(path)
