"""Packages for an image: what is missing is seen by content, and pip is asked for the image's."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def downloads(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "containers"))
    import image_downloads

    return image_downloads


def test_only_the_right_content_counts(downloads, tmp_path) -> None:
    good = hashlib.sha256(b"wheel").hexdigest()
    other = hashlib.sha256(b"other").hexdigest()
    text = (
        f"a==1 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{good}\nb==2 \\\n"
        f"    --hash=sha256:{other}\n"
    )
    assert downloads.missing(text, tmp_path) == ["a", "b"]
    (tmp_path / "a-1.whl").write_bytes(b"wheel")
    (tmp_path / "b-2.whl").write_bytes(b"othe")  # cut off by a crash
    assert downloads.missing(text, tmp_path) == ["b"]
    (tmp_path / "b-2.whl").write_bytes(b"other")
    assert downloads.missing(text, tmp_path) == []


def test_wheels_are_asked_for_the_python_of_the_image(downloads) -> None:
    command = downloads.download_command(["pip"], Path("r.txt"), Path("d"), "x86_64", source=False)
    assert "--python-version=3.11" in command and "--only-binary=:all:" in command
    assert {"--platform=manylinux2014_x86_64", "--platform=manylinux_2_28_x86_64"} <= set(command)
    # Debian 12 has C library 2.36: a wheel for a newer one would not load
    assert "--platform=manylinux_2_36_x86_64" in command
    assert "--platform=manylinux_2_37_x86_64" not in command
    assert {"--require-hashes", "--no-deps"} <= set(command)


def test_sources_have_no_platform(downloads) -> None:
    command = downloads.download_command(["pip"], Path("r.txt"), Path("d"), "x86_64", source=True)
    assert not [token for token in command if token.startswith(("--platform", "--only-binary"))]
    assert "--require-hashes" in command
