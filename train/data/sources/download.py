"""Published files: fetched once, whole or absent, and trusted by their checksum only."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from train.data.waiting import progress, say
from train.errors import FULL, DataError
from train.record.atomic import flush_to_disk

_READ = 1 << 20
_TIMEOUT_S = 20.0  # of connecting, and of each read


@dataclass(frozen=True)
class Remote:
    """One published file."""

    name: str
    url: str
    size: int  # bytes
    sha256: str
    inner: str | None = None  # sha256 of what it unpacks to, if that is what counts


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(path: Path, found: str, remote: Remote) -> None:
    """Compare a file that somebody put there with what was published; it is left as it is.

    ``found``: its sha256, or that of what it unpacks to.

    Raises:
        DataError: another checksum.
    """
    expected = remote.inner or remote.sha256
    if found != expected:
        raise DataError(
            f"{path} is truncated or altered: sha256 found {found}, expected {expected}. It was "
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
            lines += [f"  {x.name} ({x.size:,} bytes, sha256 {x.sha256})" for x in missing[number:]]
            lines += [f"{otherwise} will do, too."] if otherwise else []
            lines += ["DATA=DIR names another folder, if the files are somewhere already."]
            raise DataError("\n".join(lines)) from error


def _fetch(remote: Remote, folder: Path) -> None:
    part = folder / f".{remote.name}.{uuid.uuid4().hex}.part"
    digest, size = hashlib.sha256(), 0
    say(f"downloading {remote.url}")
    try:
        # the addresses are those of this program or of its tests, never of a user
        request = urllib.request.urlopen(remote.url, timeout=_TIMEOUT_S)  # noqa: S310
        with request as answer, part.open("wb") as out:
            while size <= remote.size and (data := answer.read(_READ)):
                digest.update(data)
                size += out.write(data)
                progress(f"{remote.name}: {size:,} of {remote.size:,} bytes")
            out.flush()
            flush_to_disk(out.fileno())
        if (size, digest.hexdigest()) != (remote.size, remote.sha256):
            found = f"{size:,}" if size <= remote.size else f"more than {remote.size:,}"
            raise DataError(
                f"wrong content, removed: {found} bytes with sha256 {digest.hexdigest()}, "
                f"expected {remote.size:,} bytes with sha256 {remote.sha256}"
            )
        part.replace(folder / remote.name)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _is_ours(error: OSError) -> bool:
    """Whether this machine's folder or disk is to blame."""
    remote = isinstance(error, urllib.error.URLError)  # its filename is an address
    return not remote and (error.filename is not None or error.errno in FULL)
