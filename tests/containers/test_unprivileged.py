"""Continuing as another user: whose environment a command gets, and which ids a user may map."""

from __future__ import annotations

import os
import pwd
import subprocess

import pytest
import unprivileged


def test_sub_ids_need_a_whole_range() -> None:
    text = "ann:100000:65536\nbob:165536:1000\n"
    users = ("ann", "bob", "an", "nobody")
    assert [user for user in users if unprivileged.has_sub_ids(text, user)] == ["ann"]


def test_a_free_range_touches_nobody_s() -> None:
    assert unprivileged.free_range("") == (100_000, 165_535)
    text = "ann:300000:65536\n# broken line\nbob:100000:65536\n"
    assert unprivileged.free_range(text) == (365_536, 431_071)


def test_without_root_we_are_the_user(monkeypatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    assert unprivileged.ensure_user() == "nobody"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_other_user_s_own_environment_and_the_same_tokens(monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere/.cache")
    monkeypatch.setenv("KEPT", "a b")
    script = 'id -un; id -gn; echo "$HOME|$USER|$XDG_CACHE_HOME|$KEPT|$PATH|$1"'
    argv = unprivileged.as_user(["sh", "-c", script, "sh", "c $HOME"], "nobody", "/nonexistent")
    argv = ["--regid=nogroup" if token.startswith("--regid") else token for token in argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    variables = f"/nonexistent|nobody||a b|{unprivileged.SEARCH_PATH}|c $HOME"
    assert done.stdout.splitlines() == ["nobody", "nogroup", variables]
