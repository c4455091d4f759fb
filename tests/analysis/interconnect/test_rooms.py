"""Arrows between the rooms: what shows knows what judges, which knows what loads; never back."""

from __future__ import annotations

import pytest

from tests.test_architecture import imports, sources

ROOMS = ("load", "judge", "show")


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_downwards_only(room: str) -> None:
    above = {f"analysis.interconnect.{name}" for name in ROOMS[ROOMS.index(room) + 1 :]}
    for file in sources(f"analysis/interconnect/{room}"):
        found = {".".join(name.split(".")[:3]) for name in imports(file)}
        assert not found & above, f"{file}: {found & above}"
