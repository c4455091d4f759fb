"""Published files: fetched once, whole or absent, and trusted by their checksum only."""

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


def sha256_of(path: Path, *, unpacked: bool = False) -> str:
    """Of a file, or of what gzip unpacks.

    Raises:
        DataError: it cannot be unpacked.
    """
    try:
        digest = hashlib.sha256()
        with gzip.open(path) if unpacked else path.open("rb") as file:
            while part := file.read(_READ):
                digest.update(part)
        return digest.hexdigest()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}): get the file again") from error


def verify(path: Path, remote: Remote) -> None:
    """Compare a file that somebody put there with what was published; it is left as it is.

    Raises:
        DataError: it is damaged, or has another checksum.
    """
    if (found := sha256_of(path, unpacked=remote.unpacked)) != remote.sha256:
        raise DataError(
            f"{path} is truncated or altered: {found} found, expected {remote.checksum}. It was "
            f"left as it is; delete it or replace it by the file from {remote.url}"
        )


def fetch_all(remotes: Sequence[Remote], folder: Path, otherwise: str = "") -> None:
    """Bring the files that are not there yet into ``folder``.

    Args:
        otherwise: for the error: what would do instead of the files.

    Raises:
        DataError: a file cannot be had; the text names all that are missing, their checksums and
            the folder to put them in by hand.
        OSError: ``folder`` cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [remote for remote in remotes if not (folder / remote.name).exists()]
    for number, remote in enumerate(missing):
        try:
            _fetch(remote, folder)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, OSError) and _is_ours(error):
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
            out.flush()
            flush_to_disk(out.fileno())
        try:
            verify(part, remote)
        except DataError as error:
            text = f"wrong content, removed: {size:,} bytes, expected {remote.checksum}"
            raise DataError(text) from error
        part.replace(folder / remote.name)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _is_ours(error: OSError) -> bool:
    """Whether this machine's folder or disk is to blame."""
    remote = isinstance(error, urllib.error.URLError)  # its filename is an address
    return not remote and (error.filename is not None or error.errno in FULL)
