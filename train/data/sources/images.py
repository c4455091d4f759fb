"""Image files of any size and mode -> uint8 RGB arrays of one size."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from train.data.dataset import Pixels
from train.data.waiting import Ticker
from train.distributed.quota import free_memory
from train.errors import DataError

#: What is meant to be an image by its name. One that cannot be decoded is an error, not a skip.
SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm",
    ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".avif", ".heic", ".heif",
})  # fmt: skip
_LISTED = 10
_PART = 256  # images per task: the pool's own work stays small
#: Mean bytes per file from which threads pay. On two cores, two threads took 1.8 times as long as
#: one for CIFAR's 1 kB files, as what they do between decoding holds Python's lock, and 0.7 times
#: as long for files of 7 kB.
_LARGE = 5_000


class Item(NamedTuple):
    """One image file: its name for messages, where or what it is, and its size."""

    name: PurePath
    content: Path | bytes
    bytes: int


def is_image(name: str) -> bool:
    return PurePath(name).suffix.lower() in SUFFIXES


def decode_image(content: Path | bytes) -> Image.Image:
    """One image as 8-bit RGB, upright as its EXIF orientation says.

    Grey becomes three equal channels; 16 bits per channel are scaled to 8; transparency is dropped,
    as Keras does; of an animation the first frame counts.

    Raises:
        OSError, SyntaxError, ValueError and what else Pillow's decoders raise on damaged files.
    """
    with Image.open(io.BytesIO(content) if isinstance(content, bytes) else content) as image:
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
        if image.mode == "RGB":
            return image
        if image.mode == "F":
            raise ValueError("its pixels are floating-point numbers of no known range")
        if image.mode.startswith("I"):  # Pillow's own conversion clips at 255: all white
            deep = np.clip(np.asarray(image, np.int64), 0, 65_535)
            return Image.fromarray(np.rint(deep / 257).astype(np.uint8)).convert("RGB")
        return image.convert("RGB")


def resized(size: int) -> Callable[[Image.Image], Pixels]:
    """To a square of ``size`` pixels, the whole image, not cropped: bicubic with antialiasing."""

    def shape(image: Image.Image) -> Pixels:
        if image.size != (size, size):
            image = image.resize((size, size), Image.Resampling.BICUBIC)
        return np.asarray(image)

    return shape


def exactly(width: int, height: int) -> Callable[[Image.Image], Pixels]:
    """As it is, where any other size is an error."""

    def shape(image: Image.Image) -> Pixels:
        if image.size != (width, height):
            raise ValueError(f"{image.size[0]} x {image.size[1]} pixels, not {width} x {height}")
        return np.asarray(image)

    return shape


def decode_images(
    items: Sequence[Item], side: int, shape: Callable[[Image.Image], Pixels]
) -> Pixels:
    """All images in order, [N, side, side, 3].

    Raises:
        DataError: images cannot be decoded (named, up to ten of them), or all together need more
            memory than there is.
    """
    _refuse_too_many(len(items), side)
    out = np.empty((len(items), side, side, 3), np.uint8)
    ticker = Ticker("decoding", len(items), "images")

    stopped = threading.Event()

    def decode(start: int) -> list[str]:
        bad = []
        for place, item in enumerate(items[start : start + _PART], start):
            if stopped.is_set():
                break
            try:
                out[place] = shape(decode_image(item.content))
            except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged files
                bad.append(f"{item.name}: {_reason(error)}")
        return bad

    bad = []
    large = sum(item.bytes for item in items) > _LARGE * len(items)
    pool = ThreadPoolExecutor(_cores() if large else 1)
    try:
        for start, found in enumerate(pool.map(decode, range(0, len(items), _PART))):
            bad += found
            ticker.add(min(_PART, len(items) - start * _PART))
    finally:
        stopped.set()  # an interrupt must not wait for all the rest
        pool.shutdown(cancel_futures=True)
    if bad:
        raise DataError(_cannot_decode(bad, len(items)))
    return out


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on a Mac
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "no image that Pillow knows"
    return str(error) or type(error).__name__


def _cannot_decode(bad: Sequence[str], total: int) -> str:
    lines = [f"{len(bad):,} of {total:,} images cannot be decoded:"]
    lines += [f"  {text}" for text in bad[:_LISTED]]
    if len(bad) > _LISTED:
        lines.append(f"  and {len(bad) - _LISTED:,} more")
    return "\n".join([*lines, "Replace or delete these files; none is skipped silently."])


def _refuse_too_many(n: int, side: int) -> None:
    """Say so before the kernel ends the process for it."""
    needed, free = n * side * side * 3, free_memory()
    if free is not None and needed > free:
        raise DataError(
            f"{n:,} images of {side} x {side} pixels need {needed / 1e9:.1f} GB of memory to "
            f"prepare; {free / 1e9:.1f} GB are available. Choose a smaller --image-size, "
            "or a machine with more memory."
        )
