"""The table of mounts, as the kernel writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.record import mount
from train.record.mount import (
    device_of,
    file_system,
    local_file_system,
    machine_at,
    mount_in_words,
)


def test_a_mount_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, table = device_of(tmp_path), tmp_path / "mountinfo"
    table.write_bytes(  # one name is no UTF-8: whoever looks at mounts meets those of others
        b"9 1 0:0 / /media/\xfc rw - vfat /dev/sdb1 rw\n"
        + f"10 1 {device} / {tmp_path} rw shared:1 - nfs4 srv:/x rw,nolock\n".encode()
    )
    monkeypatch.setattr(mount, "MOUNTS", table)
    assert file_system(device) == ("nfs4", "srv:/x")
    assert mount_in_words(tmp_path) == "srv:/x (nfs4)"
    with table.open() as handle:
        assert mount_in_words(handle.fileno()) == "srv:/x (nfs4)"
    assert "No such file" in mount_in_words(tmp_path / "none")
    monkeypatch.setattr(mount, "MOUNTS", tmp_path / "none")
    assert file_system(device) == ("", "") and "mountinfo" in mount_in_words(tmp_path)


def test_a_file_system_that_no_node_can_see(tmp_path: Path) -> None:
    """/dev/shm is memory of this machine; a disk of it may be served to others."""
    assert local_file_system(Path("/dev/shm")) == "tmpfs"
    assert local_file_system(tmp_path / "nowhere") is None


def test_a_machine_without_a_known_kernel_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of them would count as one machine that shares locks with itself."""
    monkeypatch.setattr(mount, "BOOT_ID", tmp_path / "none")
    assert machine_at(tmp_path) == ""
