"""The machine's ways to packages, as an image build takes them over."""

from __future__ import annotations

import image_mirrors
import pytest

TARGETS = """\
http://mirror.site/debian/ bookworm contrib
http://mirror.site/debian/ bookworm main
http://mirror.site/debian-security/ bookworm-security main
http://elsewhere/apt nodistro main
"""


def test_mirrors_are_the_machines_own_unless_the_user_names_others(monkeypatch) -> None:
    monkeypatch.setattr(image_mirrors, "index_targets", lambda: TARGETS)
    monkeypatch.setattr(image_mirrors, "debian_codename", lambda: "bookworm")
    assert image_mirrors.debian_mirror({}) == "http://mirror.site/debian"
    security = "http://mirror.site/debian-security"
    assert image_mirrors.security_mirror({}, "bookworm") == security
    named = {"DEBIAN_MIRROR": "http://mine/debian/", "DEBIAN_SECURITY_MIRROR": "http://mine/sec/"}
    assert image_mirrors.debian_mirror(named) == "http://mine/debian"
    assert image_mirrors.security_mirror(named, "bookworm") == "http://mine/sec"
    assert image_mirrors.security_mirror({}, "trixie") is None
    monkeypatch.setattr(image_mirrors, "debian_codename", lambda: "trixie")
    with pytest.raises(image_mirrors.SetupError, match="DEBIAN_MIRROR=http"):
        image_mirrors.debian_mirror({})


def test_ca_bundle(tmp_path) -> None:
    bundle = tmp_path / "site.pem"
    bundle.write_text("certificates")
    assert image_mirrors.ca_bundle({}) is None
    assert image_mirrors.ca_bundle({"PIP_CERT": "/absent", "CA": str(bundle)}) == bundle
    with pytest.raises(image_mirrors.SetupError, match="PIP_CERT=/absent found, expected a file"):
        image_mirrors.ca_bundle({"PIP_CERT": "/absent"})


def test_proxies_in_both_spellings() -> None:
    assert image_mirrors.proxies({"HTTPS_PROXY": "http://p:3128", "no_proxy": "localhost"}) == {
        "https_proxy": "http://p:3128", "HTTPS_PROXY": "http://p:3128",
        "no_proxy": "localhost", "NO_PROXY": "localhost",
    }  # fmt: skip


def test_apt_settings_leave_out_this_machine_s_certificate_files(program) -> None:
    proxy = 'Acquire::http::Proxy "http://p:1";'
    program("apt-config", f"echo 'Acquire::https::CAInfo \"/etc/site.pem\";'\necho '{proxy}'")
    assert image_mirrors.apt_settings() == f"{proxy}\n"
