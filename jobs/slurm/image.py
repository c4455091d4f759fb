"""The image that a site's ranks run in: found, and checked before anything is submitted."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from jobs.container import NO_IMAGE
from jobs.site import Site
from jobs.slurm.script import check_path
from train.config import ConfigError

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


def find_image(site: Site, root: Path) -> Image:
    """The image and its digest.

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
    try:
        if path.is_dir():
            return Image(str(path), None)  # an unpacked image has no one digest
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"there is no image {path}: {hint}") from None
    except OSError as error:
        raise ConfigError(
            f"the image {path} cannot be read ({error.strerror}): fix its permissions, or {hint}"
        ) from error
    if MAGIC not in head:
        raise ConfigError(f"{path} is no SIF image (it begins with {head[:16]!r}): {hint}")
    whole = sum(_DATA.unpack(head[-_DATA.size :])) if len(head) == HEAD_BYTES else HEAD_BYTES
    if (size := path.stat().st_size) < whole:
        raise ConfigError(
            f"the image {path} is cut off: {size:,} bytes found, {whole:,} expected by its own "
            f"header. Copy it again, or {hint}"
        )
    return Image(str(path), digest_of(path))


def digest_of(path: Path) -> str:
    """sha256 of the file: from the note beside it if that is the newer one, else computed."""
    note = path.with_name(f"{path.name}.sha256")
    try:
        if note.stat().st_mtime >= path.stat().st_mtime:
            told = note.read_text(encoding="ascii").split()[0]
            if len(told) == 64 and int(told, 16) >= 0:
                return told
    except (OSError, ValueError, IndexError):
        pass  # it only saves time
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
