"""Archives that try to leave their folder, to be something else, or to be endless are refused."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.train.data.raw_files import noise, write_tar
from train.data.sources.archive import read_unpacked, tar_files
from train.errors import DataError

MB = 1 << 20


def crafted(path: Path, change: Callable[[tarfile.TarInfo], None]) -> Path:
    """An archive whose second member was changed."""
    with tarfile.open(path, "w") as archive:
        for name in ("good.txt", "bad.txt"):
            member = tarfile.TarInfo(name)
            member.size = 4
            if name == "bad.txt":
                change(member)
            archive.addfile(member, io.BytesIO(b"evil") if member.isreg() else None)
    return path


def set_to(**values: object) -> Callable[[tarfile.TarInfo], None]:
    def change(member: tarfile.TarInfo) -> None:
        for name, value in values.items():
            setattr(member, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_to(name="../../escaped.txt"), "leaves the archive"),
        (set_to(name="a/../../escaped.txt"), "leaves the archive"),
        (set_to(name="/tmp/escaped.txt"), "leaves the archive"),
        (set_to(name="..\\escaped.txt"), "leaves the archive"),
        (set_to(type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0), "link to '/etc/passwd'"),
        (set_to(type=tarfile.LNKTYPE, linkname="good.txt", size=0), "link to 'good.txt'"),
        (set_to(type=tarfile.CHRTYPE, size=0), "neither a plain file nor a folder"),
        (set_to(type=tarfile.FIFOTYPE, size=0), "neither a plain file nor a folder"),
    ],
)
def test_unsafe_member_is_refused(
    tmp_path: Path, change: Callable[[tarfile.TarInfo], None], reason: str
) -> None:
    archive = crafted(tmp_path / "x.tar", change)
    with pytest.raises(DataError, match=reason):
        list(tar_files(archive, MB))
    assert [path.name for path in tmp_path.rglob("*")] == ["x.tar"]
    assert not (tmp_path.parent.parent / "escaped.txt").exists()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_members_come_whole_in_any_compression(tmp_path: Path, mode: str) -> None:
    files = {"a/one": noise(5000, 1), "a/two": b""}
    archive = write_tar(tmp_path / "x", files, mode)
    assert {str(name): content for name, content in tar_files(archive, MB)} == files


@pytest.mark.parametrize(
    ("mode", "keep"),
    # a plain tar ends in padding, of which nothing is missed; the others end in a checksum
    [("w", 0.1), ("w", 0.6), *((f"w:{kind}", keep) for kind in ("gz", "bz2", "xz")
                               for keep in (0.1, 0.6, 0.999))],
)  # fmt: skip
def test_truncated_archive_is_told(tmp_path: Path, mode: str, keep: float) -> None:
    archive = write_tar(tmp_path / "x", {"one": noise(40_000)}, mode)
    content = archive.read_bytes()
    archive.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(DataError, match="truncated or damaged"):
        list(tar_files(archive, MB))


@pytest.mark.parametrize("content", [b"", b"no archive at all" * 100])
def test_what_is_no_archive_is_told(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.tar.gz"
    file.write_bytes(content)
    with pytest.raises(DataError, match="truncated or damaged"):
        list(tar_files(file, MB))


def test_bomb_is_refused(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "x.tar.gz", {"zeros": bytes(4 * MB)})
    assert archive.stat().st_size < MB / 10
    with pytest.raises(DataError, match="claims 4,194,304 bytes"):
        list(tar_files(archive, MB))


def test_many_small_members_are_bounded_together(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "x.tar.gz", {f"{i}": bytes(MB // 2) for i in range(4)})
    with pytest.raises(DataError, match="more than 1,048,576 bytes"):
        list(tar_files(archive, MB))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, lambda data: data])
def test_content_is_unpacked_by_its_first_bytes(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "anything"
    file.write_bytes(pack(noise(MB + 1000)))
    assert read_unpacked(file, 2 * MB) == noise(MB + 1000)
    with pytest.raises(DataError, match="unpacks to more than"):
        read_unpacked(file, MB)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("keep", [0.5, 0.9999])
def test_truncated_file_is_told(
    tmp_path: Path, pack: Callable[[bytes], bytes], keep: float
) -> None:
    file = tmp_path / "x"
    packed = pack(noise(100_000))
    file.write_bytes(packed[: int(len(packed) * keep)])
    with pytest.raises(DataError, match="truncated or damaged"):
        read_unpacked(file, MB)


def test_altered_byte_is_told(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(noise(100_000)))
    packed[50_000] ^= 1
    (tmp_path / "x").write_bytes(packed)
    with pytest.raises(DataError, match="truncated or damaged"):
        read_unpacked(tmp_path / "x", MB)
