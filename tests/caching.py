"""A mount that caches as NFS does: what others write behind it is not seen for half a minute."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: attributes, names, and names that are not there
KEPT = ",".join(f"{what}_timeout=30" for what in ("attr", "entry", "negative"))


@contextmanager
def seen_late(behind: Path, at: Path) -> Iterator[Path]:
    """``behind`` as it is seen from a machine that caches, mounted on the folder ``at``."""
    if shutil.which("bindfs") is None:
        pytest.skip("no bindfs (Debian's package bindfs): no mount that caches")
    at.mkdir(exist_ok=True)
    done = subprocess.run(
        ["bindfs", "-o", KEPT, str(behind), str(at)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"bindfs cannot mount here: {done.stderr.strip()}")
    try:
        yield at
    finally:
        # of a user who is not root it is taken down by FUSE's own program
        for argv in (["umount", str(at)], ["fusermount3", "-u", str(at)],
                     ["fusermount", "-u", str(at)]):  # fmt: skip
            if shutil.which(argv[0]) and not subprocess.run(argv, check=False).returncode:
                break
