"""Refusals before anything is done, what a build sees, and what is downloaded for it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from build import inputs
from locks import SetupError

#: What a runtime says of its options.
NEW = "echo '--build-arg strings'"


@pytest.mark.parametrize(
    ("user", "needed", "installed", "says"),
    [
        ("nemo", 0, (), r"usermod --add-subuids .* nemo "),
        ("somebody", 10**18, (), r"expected room for 1000000000\.0 GB in .*XDG_CACHE_HOME"),
        ("somebody", 0, (), r"the program debootstrap.* is missing.*docs/images\.md"),
        ("somebody", 0, ("debootstrap",), r"absent.gpg.* is missing.*docs/images\.md"),
    ],
)
def test_what_the_machine_lacks_is_said_before_the_work(
    program, monkeypatch, tmp_path, user, needed, installed, says
) -> None:
    monkeypatch.setattr(inputs, "has_sub_ids", lambda user: user == "somebody")
    monkeypatch.setitem(inputs.NEEDED_BYTES, "cpu", needed)
    monkeypatch.setattr(inputs, "KEYRING", Path("/absent.gpg"))
    for name in installed:
        program(name)
    with pytest.raises(SetupError, match=says):
        inputs.check_machine("cpu", tmp_path, user, str(program("apptainer", NEW)))


def test_an_old_apptainer_is_refused_before_anything_is_downloaded(program, tmp_path) -> None:
    """Seen: after gigabytes of downloads it was asked whether the Debian mirror is in reach."""
    old = program("singularity", "echo '--bind strings'")
    with pytest.raises(SetupError, match=rf"{old} lacks .*expected Apptainer 1\.2 or later"):
        inputs.check_machine("cpu", tmp_path, "somebody", str(old))


def test_the_build_keeps_its_trees_off_tmp_and_gets_proxies_and_certificates(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    monkeypatch.setenv("no_proxy", "localhost")
    environment = inputs.environment_of_build(tmp_path, Path("/ca.pem"))
    assert environment["APPTAINER_TMPDIR"] == str(tmp_path / "tmp")
    assert environment["https_proxy"] == environment["HTTPS_PROXY"] == "http://p:1"
    assert environment["no_proxy"] == environment["NO_PROXY"] == "localhost"
    assert environment["SSL_CERT_FILE"] == environment["PIP_CERT"] == "/ca.pem"


def test_only_packages_with_the_right_content_count(tmp_path) -> None:
    good, other = (hashlib.sha256(text).hexdigest() for text in (b"wheel", b"other"))
    text = (
        f"a==1 \\\n    --hash=sha256:{'0' * 64} \\\n    --hash=sha256:{good}\nb==2 \\\n"
        f"    --hash=sha256:{other}\n"
    )
    assert inputs.missing(text, tmp_path) == ["a", "b"]
    (tmp_path / "a-1.whl").write_bytes(b"wheel")
    (tmp_path / "b-2.whl").write_bytes(b"othe")  # cut off by a crash
    assert inputs.missing(text, tmp_path) == ["b"]
    (tmp_path / "b-2.whl").write_bytes(b"other")
    assert inputs.missing(text, tmp_path) == []


def test_wheels_are_asked_for_the_python_of_the_image_and_sources_for_none() -> None:
    pip, listing, folder = ["pip"], Path("r.txt"), Path("d")
    wheels, sources = (
        set(inputs.download_command(pip, listing, folder, "x86_64", source=source))
        for source in (False, True)
    )
    # Debian 12 has C library 2.36: a wheel for a newer one would not load
    assert {"--python-version=3.11", "--platform=manylinux_2_36_x86_64"} <= wheels
    assert "--platform=manylinux_2_37_x86_64" not in wheels
    assert not [token for token in sources if token.startswith("--platform")]
    assert "--require-hashes" in wheels & sources


@pytest.mark.parametrize(("mode", "refused"), [(0o700, False), (0o755, False), (0o1777, True)])
def test_parts_are_kept_where_nobody_else_can_put_some(
    tmp_path, monkeypatch, mode, refused
) -> None:
    for name in ("XDG_CACHE_HOME", "HOME"):
        folder = tmp_path / name
        monkeypatch.setenv(name, str(folder))
        caches = folder if name == "XDG_CACHE_HOME" else folder / ".cache"
        (caches / "horoscale" / "images").mkdir(parents=True)
        (caches / "horoscale" / "images").chmod(mode)
    if not refused:
        named = tmp_path / "XDG_CACHE_HOME" / "horoscale" / "images"
        assert inputs.work_folder() == named and (named / "downloads").is_dir()
        return
    with pytest.raises(SetupError, match=r"others than you can change .*/images"):
        inputs.work_folder()
    (tmp_path / "HOME" / ".cache" / "horoscale" / "images").chmod(0o700)
    assert inputs.work_folder().is_relative_to(tmp_path / "HOME")


@pytest.mark.parametrize("open_", ["", "horoscale", "horoscale/images", "horoscale/images/wheels"])
def test_a_place_that_a_group_can_write_on_the_way_is_one_where_others_put_some(
    tmp_path, monkeypatch, open_
) -> None:
    """Seen: only the mode of the last folder was looked at, and only whether all can write."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "named"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "named" / "horoscale" / "images" / "wheels").mkdir(parents=True)
    assert inputs.work_folder().is_relative_to(tmp_path / "named")
    if os.geteuid() == 0:
        os.chown(tmp_path / "named" / open_, 0, 1)
    (tmp_path / "named" / open_).chmod(0o775 if os.geteuid() == 0 else 0o777)
    only_root_looks_above = open_ == "" and os.geteuid() != 0
    taken = "named" if only_root_looks_above else "home"
    assert inputs.work_folder().is_relative_to(tmp_path / taken)


def test_ids_are_the_user_s_own_by_the_files_or_the_site_s_directory(program, monkeypatch) -> None:
    texts = {"/etc/subuid": "ann:1:65536\n", "/etc/subgid": "# none\nann:1:65536\n"}
    monkeypatch.setattr(Path, "is_file", lambda path: True)
    monkeypatch.setattr(Path, "read_text", lambda path: texts[str(path)])
    assert [inputs.has_sub_ids(user) for user in ("ann", "an", "nobody")] == [True, False, False]
    program("getsubids", '[ "$1" = eve ]')
    assert [inputs.has_sub_ids(user) for user in ("eve", "bob")] == [True, False]


def test_pip_is_no_module_of_the_folder_that_we_are_in(tmp_path, monkeypatch) -> None:
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    assert inputs.output([*inputs.usable_pip(tmp_path / "venv"), "--version"])
    assert not (tmp_path / "ran").exists()
