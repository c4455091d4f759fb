"""Packages for an image: what is missing is seen by content, and pip is asked for the image's."""

from __future__ import annotations

import hashlib
from pathlib import Path

import image_downloads


def test_only_the_right_content_counts(tmp_path) -> None:
    good, other = (hashlib.sha256(text).hexdigest() for text in (b"wheel", b"other"))
    text = (
        f"a==1 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{good}\nb==2 \\\n"
        f"    --hash=sha256:{other}\n"
    )
    assert image_downloads.missing(text, tmp_path) == ["a", "b"]
    (tmp_path / "a-1.whl").write_bytes(b"wheel")
    (tmp_path / "b-2.whl").write_bytes(b"othe")  # cut off by a crash
    assert image_downloads.missing(text, tmp_path) == ["b"]
    (tmp_path / "b-2.whl").write_bytes(b"other")
    assert image_downloads.missing(text, tmp_path) == []


def download(*, source: bool) -> set[str]:
    pip, listing, folder = ["pip"], Path("r.txt"), Path("d")
    return set(image_downloads.download_command(pip, listing, folder, "x86_64", source=source))


def test_wheels_are_asked_for_the_python_of_the_image() -> None:
    command = download(source=False)
    assert {"--python-version=3.11", "--only-binary=:all:"} <= command
    assert {"--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64"} <= command
    # Debian 12 has C library 2.36: a wheel for a newer one would not load
    assert "--platform=manylinux_2_36_x86_64" in command
    assert "--platform=manylinux_2_37_x86_64" not in command
    assert {"--require-hashes", "--no-deps"} <= command


def test_sources_have_no_platform() -> None:
    command = download(source=True)
    assert not [token for token in command if token.startswith(("--platform", "--only-binary"))]
    assert "--require-hashes" in command
