"""The code of a submission: a copy, so that what waits in the queue runs what was submitted.

A `git pull` while a sweep is queued would otherwise mix versions in it. A copy was chosen over a
refusal at the start of a job: the queue that was waited for is not lost, and the checkout stays
free to be worked on.
"""

from __future__ import annotations

import compileall
import hashlib
import shutil
import tempfile
from pathlib import Path
from py_compile import PycInvalidationMode

FOLDER_NAME = ".code"
_PARTS = ("jobs", "train")


def freeze(root: Path, folder: Path) -> Path:
    """Copy jobs/ and train/ of the checkout ``root`` under ``folder``; equal code is copied once.

    Files are read-only; folders are not, so that results can be removed as before.

    Raises:
        OSError: the folder cannot be written.
    """
    files = {
        file.relative_to(root): file.read_bytes()
        for part in _PARTS
        for file in sorted((root / part).rglob("*"))
        if file.suffix in (".py", ".yaml", ".yml") and file.is_file()
    }
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    parent = folder / FOLDER_NAME
    target = parent / digest.hexdigest()[:12]
    if target.is_dir():
        return target
    parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    try:
        new.chmod(0o755)
        for name, content in files.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(content)
            (new / name).chmod(0o444)
        # nobody else will: ranks of other users' containers may not write here
        compileall.compile_dir(
            new, quiet=2, stripdir=str(new), prependdir=str(target),
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
        )  # fmt: skip
        new.rename(target)
    except OSError:
        if not target.is_dir():  # another submission was first
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return target
