"""The machine's ways to packages, as an image build takes them over."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TARGETS = """\
http://mirror.site/debian/ bookworm contrib
http://mirror.site/debian/ bookworm main
http://mirror.site/debian-security/ bookworm-security main
http://elsewhere/apt nodistro main
"""


@pytest.fixture
def mirrors(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "containers"))
    import image_mirrors

    return image_mirrors


def test_the_mirror_of_a_suite(mirrors) -> None:
    assert mirrors.mirror_of(TARGETS, "bookworm") == "http://mirror.site/debian"
    assert mirrors.mirror_of(TARGETS, "bookworm-security") == "http://mirror.site/debian-security"
    assert mirrors.mirror_of(TARGETS, "trixie") is None
    assert mirrors.mirror_of("", "bookworm") is None


def test_what_the_user_says_wins(mirrors) -> None:
    told = {"DEBIAN_MIRROR": "http://mine/debian/", "DEBIAN_SECURITY_MIRROR": "http://mine/sec/"}
    assert mirrors.debian_mirror(told) == "http://mine/debian"
    assert mirrors.security_mirror(told, "bookworm") == "http://mine/sec"


def test_no_mirror_at_all_says_how_to_name_one(mirrors, monkeypatch) -> None:
    monkeypatch.setattr(mirrors, "index_targets", lambda: "")
    with pytest.raises(mirrors.SetupError, match="DEBIAN_MIRROR=http"):
        mirrors.debian_mirror({})


def test_ca_bundle(mirrors, tmp_path) -> None:
    bundle = tmp_path / "site.pem"
    bundle.write_text("certificates")
    assert mirrors.ca_bundle({}) is None
    assert mirrors.ca_bundle({"PIP_CERT": "/absent", "CA": str(bundle)}) == bundle
    with pytest.raises(mirrors.SetupError, match="PIP_CERT=/absent found, expected a file"):
        mirrors.ca_bundle({"PIP_CERT": "/absent"})


def test_proxies_in_both_spellings(mirrors) -> None:
    found = mirrors.proxies({"HTTPS_PROXY": "http://p:3128", "no_proxy": "localhost"})
    assert found == {
        "https_proxy": "http://p:3128", "HTTPS_PROXY": "http://p:3128",
        "no_proxy": "localhost", "NO_PROXY": "localhost",
    }  # fmt: skip


def test_apt_settings_leave_out_this_machine_s_certificate_files(mirrors, tmp_path, monkeypatch):
    fake = tmp_path / "apt-config"  # stands for a machine whose apt is set up so
    fake.write_text(
        "#!/bin/sh\necho 'Acquire::https::CAInfo \"/etc/site.pem\";'\n"
        "echo 'Acquire::http::Proxy \"http://p:1\";'\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert mirrors.apt_settings() == 'Acquire::http::Proxy "http://p:1";\n'
