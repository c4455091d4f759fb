"""The image that a site's ranks run in: found, and checked before anything is submitted, and once
more before ranks start from it."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from jobs.container import NO_IMAGE
from jobs.digest import Digest, FileMark, digest_of
from jobs.site import Site
from jobs.slurm.script import check_path
from train.errors import ConfigError, remedy

BUILT = ("cpu", "gpu")
#: A SIF file begins with a header of this size: a line that makes it executable, its mark, ...
HEAD_BYTES = 128
MAGIC = b"SIF_MAGIC"
#: ... and at its end where the data begin and how many bytes they are.
_DATA = struct.Struct("<2q")


@dataclass(frozen=True)
class Image:
    path: str  # or NO_IMAGE
    digest: str | None  # sha256 of the file
    mark: FileMark | None = None  # of the file that has this digest


def find_image(site: Site, root: Path) -> Image:
    """The site's image and its digest.

    Raises:
        ConfigError: it is missing, cannot be read, or is no image.
    """
    if site.image == NO_IMAGE:
        return Image(NO_IMAGE, None)
    built = site.image in BUILT
    path = root / "containers" / "images" / f"{site.image}.sif" if built else Path(site.image)
    path = path.expanduser().absolute()
    hint = f"make image IMAGE={site.image}" if built else "name another with image: in the site"
    check_path(path, "the image")
    return _checked(path, hint)


def image_now(image: Image) -> Image:
    """The image as it is now, for the job that is about to start ranks from it: the file may have
    been replaced while the job waited.

    The ranks then run from the new one: their records carry its digest, and the report warns where
    runs from different images are compared. A queue that was waited for is not thrown away.

    Raises:
        ConfigError: as :func:`find_image`.
    """
    if image.path == NO_IMAGE:
        return image
    known = None
    if image.digest is not None and image.mark is not None:
        known = Digest(sha256=image.digest, mark=image.mark)
    return _checked(Path(image.path), "put it back, or name another in the site", known)


def _checked(path: Path, hint: str, known: Digest | None = None) -> Image:
    try:
        if path.is_dir():
            return Image(str(path), None)  # an unpacked image has no one digest
        with path.open("rb") as file:
            head, size = file.read(HEAD_BYTES), os.fstat(file.fileno()).st_size
        if MAGIC not in head:
            raise ConfigError(f"{path} is no SIF image (it begins with {head[:16]!r}): {hint}")
        whole = sum(_DATA.unpack(head[-_DATA.size :])) if len(head) == HEAD_BYTES else HEAD_BYTES
        if size < whole:
            raise ConfigError(
                f"the image {path} is cut off: {size:,} bytes found, {whole:,} expected by its own "
                f"header. Copy it again, or {hint}"
            )
        found = digest_of(path, known)
    except FileNotFoundError:
        raise ConfigError(f"there is no image {path}: {hint}") from None
    except OSError as error:
        raise ConfigError(
            f"the image {path} cannot be read ({error.strerror}): "
            + (f"{todo}, or {hint}" if (todo := remedy(error)) else hint)
        ) from error
    return Image(str(path), found.sha256, found.mark)
