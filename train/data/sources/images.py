"""Image files of any size and mode -> uint8 RGB arrays of one size."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from train.data.dataset import Pixels
from train.data.waiting import progress, say
from train.distributed.machine.quota import free_memory
from train.errors import DataError

#: What is meant to be an image by its name. One that cannot be decoded is an error, not a skip.
SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm",
    ".pgm", ".pbm", ".pnm", ".jp2", ".tga", ".avif", ".heic", ".heif",
})  # fmt: skip
_TURNS = {
    number: Image.Transpose[name]
    for number, name in enumerate(
        ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270",
         "TRANSVERSE", "ROTATE_90"), 2,
    )
}  # fmt: skip
_DARK = "horoscale_dark"
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_PIXELS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_LISTED = 10
_PART = 32  # images per task: the pool's own work is small, and an interrupt waits for few
#: Mean bytes per file from which threads pay. On two cores, two threads took 1.8 times as long as
#: one for CIFAR's 1 kB files, as what they do between decoding holds Python's lock, and 0.7 times
#: as long for files of 7 kB.
_LARGE = 5_000


def decode_image(content: bytes) -> tuple[Image.Image, bool]:
    """One image as 8-bit RGB, upright as its EXIF orientation says; and whether all its metadata
    could be read. Metadata that cannot are left out: pixels need none.

    Grey becomes three equal channels; 16 bits per channel are scaled to 8; transparency is dropped,
    as Keras does; of an animation the first frame counts.

    Raises:
        OSError, SyntaxError, ValueError and what else Pillow's decoders raise on damaged files.
    """
    try:
        return _decoded(content)
    except Exception:
        bare = _without_metadata(content)
        if bare == content:
            raise
        return _decoded(bare)[0], False


def _decoded(content: bytes) -> tuple[Image.Image, bool]:
    with Image.open(io.BytesIO(content)) as image:
        deep = image.mode.startswith("I") or ";16" in str(image.tile[:1])
        image.load()
        try:
            turn, complete = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1)), True
        except Exception:  # noqa: BLE001 - as many kinds as there are ways to damage an EXIF block
            turn, complete = None, False
        rgb = _rgb(image if turn is None else image.transpose(turn))
        rgb.info[_DARK] = deep and np.asarray(rgb).max() < 32
        return rgb, complete


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers of no known range")
    if image.mode.startswith("I"):  # Pillow's own conversion clips at 255: all white
        deep = np.clip(np.asarray(image, np.int64), 0, 65_535)
        image = Image.fromarray(np.rint(deep / 257).astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")


def _without_metadata(content: bytes) -> bytes:
    """A PNG's chunks that hold pixels, whatever its others (text, resolution, profiles) are."""
    if not content.startswith(_PNG):
        return content
    kept, at = [_PNG], len(_PNG)
    while at < len(content):
        after = at + 12 + int.from_bytes(content[at : at + 4], "big")
        if content[at + 4 : at + 8] in _PNG_PIXELS:
            kept.append(content[at:after])
        at = after
    return b"".join(kept)


def decode_images(files: Sequence[Path], side: int) -> Pixels:
    """All images in order, [N, side, side, 3]: the whole of each, not cropped, by bicubic
    interpolation with antialiasing.

    Raises:
        DataError: images cannot be decoded (named, up to ten of them), or all together need more
            memory than there is.
    """
    needed, free = len(files) * side * side * 3, free_memory()
    if free is not None and needed > free:  # say so before the kernel ends the process for it
        raise DataError(
            f"{len(files):,} images of {side} x {side} pixels need {needed / 1e9:.1f} GB of memory "
            f"to prepare; {free / 1e9:.1f} GB are available. Choose a smaller --image-size, "
            "or a machine with more memory."
        )
    out = np.empty((len(files), side, side, 3), np.uint8)
    incomplete, dark = list[str](), list[str]()

    def decode(start: int) -> list[str]:
        bad = []
        for place, file in enumerate(files[start : start + _PART], start):
            try:
                image, complete = decode_image(file.read_bytes())
                if image.info.get(_DARK):
                    dark.append(str(file))
                # without an effect on images of this size
                out[place] = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC))
                if not complete:
                    incomplete.append(str(file))
            except Exception as error:  # noqa: BLE001 - decoders raise anything on damaged files
                unknown = isinstance(error, UnidentifiedImageError)  # its text has an address
                what = "no image that Pillow knows" if unknown else str(error)
                bad.append(f"  {file}: {what or type(error).__name__}")
        return bad

    bad = []
    some = files[::_PART]
    large = sum(file.stat().st_size for file in some) > _LARGE * len(some)
    # on a Mac a process has no cores of its own
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    pool = ThreadPoolExecutor(cores if large else 1)
    try:
        for start, found in enumerate(pool.map(decode, range(0, len(files), _PART))):
            bad += found
            done = min(len(files), (start + 1) * _PART)
            progress(f"decoding: {done:,} of {len(files):,} images")
    finally:
        pool.shutdown(cancel_futures=True)
    if bad:
        lines = [f"{len(bad):,} of {len(files):,} images cannot be decoded:", *bad[:_LISTED]]
        if len(bad) > _LISTED:
            lines.append(f"  and {len(bad) - _LISTED:,} more")
        raise DataError("\n".join([*lines, "Replace or delete these files; none is skipped."]))
    for noted, what, then in (
        (incomplete, "have metadata that cannot be read",
         "their pixels are used as they are stored, and an orientation is not seen"),
        (dark, "of 16 bits or more use less than an eighth of 0 to 65,535",
         "they become almost black, unless you scale them to that range"),
    ):  # fmt: skip
        if noted:
            say(f"{len(noted):,} images {what}, e.g. {min(noted)}: {then}")
    return out
