"""What an image is made of: keys that change when they must and only then, definitions, argv."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPILERS = ("g++", "gcc", "python3-dev", "libopenmpi-dev", "nvidia-cuda-toolkit", "make ")


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "containers"))
    import image_plan

    return image_plan


@pytest.fixture(params=("cpu", "gpu"))
def parts(request, plan):
    return plan.read_parts(request.param, "x86_64")


def keys(plan, parts) -> tuple[str, str, str]:
    return plan.base_key(parts), plan.wheel_key(parts), plan.image_key(parts)


def which_change(plan, parts, changed) -> tuple[bool, bool, bool]:
    pairs = zip(keys(plan, parts), keys(plan, changed), strict=True)
    return tuple(before != after for before, after in pairs)


def test_a_changed_base_changes_everything(plan, parts) -> None:
    changed = replace(parts, base=parts.base.replace("openmpi-bin", "openmpi-bin less"))
    assert which_change(plan, parts, changed) == (True, True, True)
    assert which_change(plan, parts, replace(parts, machine="aarch64")) == (True, True, True)


@pytest.mark.parametrize("field", ("horovod", "build", "cuda", "compiling", "patch"))
def test_what_compiles_horovod_changes_wheel_and_image(plan, parts, field) -> None:
    changed = replace(parts, **{field: getattr(parts, field) + "more\n"})
    assert which_change(plan, parts, changed) == (False, True, True)


def test_another_tensorflow_means_another_wheel(plan, parts) -> None:
    name = plan.framework(parts)
    packages = parts.packages.replace(f"\n{name}==2.15.1", f"\n{name}==2.15.2")
    changed = replace(parts, packages=packages)
    assert which_change(plan, parts, changed) == (False, True, True)


def test_another_package_or_finish_keeps_the_wheel(plan, parts) -> None:
    packages = re.sub(r"(?m)^pillow==\S+", "pillow==99", parts.packages)
    assert packages != parts.packages
    assert which_change(plan, parts, replace(parts, packages=packages)) == (False, False, True)
    script = replace(parts, script=parts.script + "rm -rf /more\n")
    assert which_change(plan, parts, script) == (False, False, True)
    final = replace(parts, definition=parts.definition + "echo more\n")
    assert which_change(plan, parts, final) == (False, False, True)


def test_a_comment_changes_nothing(plan, parts) -> None:
    changed = replace(
        parts, base=f"# why\n{parts.base}", definition=f"{parts.definition}\n   # why\n"
    )
    assert keys(plan, parts) == keys(plan, changed)


def test_both_images_stand_on_one_base(plan) -> None:
    cpu, gpu = (plan.read_parts(name, "x86_64") for name in ("cpu", "gpu"))
    assert plan.base_key(cpu) == plan.base_key(gpu)
    assert plan.wheel_key(cpu) != plan.wheel_key(gpu)


def test_lists_of_texts_have_digests_of_their_own(plan) -> None:
    assert plan.digest("ab", "c") != plan.digest("a", "bc") != plan.digest("abc")


def test_only_the_build_stage_has_compilers(plan, parts) -> None:
    assert list(plan.stages(parts.definition)) == ["build", "final"]
    final = plan.without_comments(plan.without_stage(parts.definition, "build"))
    texts = final + plan.without_comments(parts.base) + plan.without_comments(parts.script)
    assert [name for name in COMPILERS if name in texts] == []
    assert "g++" in parts.definition


def test_braces_and_arguments_are_the_same_set(plan, parts) -> None:
    """Apptainer refuses values that a definition does not use as well as missing ones."""
    told = plan.build_arguments(parts, Path("/base.sif"), "/mnt/wheels/x", "c0ffee")
    for text in (parts.definition, plan.without_stage(parts.definition, "build")):
        assert set(re.findall(r"\{\{ (\w+) \}\}", text)) == set(told)
    assert re.findall(r"\{\{ (\w+) \}\}", parts.base) == ["mirror"]
    assert told["commit"] == "c0ffee" and told["tensorflow"] == "2.15.1"


def test_the_gpu_lock_holds_only_what_differs(plan) -> None:
    ranks, gpu = (
        plan.entries((ROOT / "containers" / f"{name}.lock").read_text())
        for name in ("ranks", "gpu")
    )
    assert not set(ranks) & set(gpu)
    cpu_parts, gpu_parts = (plan.read_parts(name, "x86_64") for name in ("cpu", "gpu"))
    cpu_names, gpu_names = (
        set(plan.entries(cpu_parts.packages)),
        set(plan.entries(gpu_parts.packages)),
    )
    assert cpu_names - gpu_names == {"tensorflow-cpu"}
    assert all(name.startswith("nvidia-") or name == "tensorflow" for name in gpu_names - cpu_names)
    versions = {
        plan.version(each.packages, plan.framework(each)) for each in (cpu_parts, gpu_parts)
    }
    assert len(versions) == 1


def test_every_requirement_has_a_hash(plan, parts) -> None:
    for text in (parts.packages, parts.horovod, parts.build, parts.cuda):
        assert all("--hash=sha256:" in entry for entry in plan.entries(text).values())
    assert "horovod" not in plan.entries(parts.packages)
    assert list(plan.entries(parts.horovod)) == ["horovod"]


def test_a_package_that_no_lock_pins_is_named(plan) -> None:
    with pytest.raises(Exception, match="do not pin tensorflow: run `make lock`"):
        plan.version("numpy==1.0 --hash=sha256:00\n", "tensorflow")


def test_build_command(plan) -> None:
    command = plan.build_command(
        "/bin/apptainer", Path("/a b"), {"key": "k", "base": "b.sif"}, Path("x.sif"), Path("x.def")
    )
    assert command == [
        "/bin/apptainer", "build", "--force",
        "--mksquashfs-args", "-comp gzip -Xcompression-level 3", "--bind", "/a b:/mnt",
        "--build-arg", "base=b.sif", "--build-arg", "key=k", "x.sif", "x.def",
    ]  # fmt: skip


def test_apt_while_building(plan) -> None:
    assert plan.sources_list("http://m/debian", None).splitlines() == [
        "deb http://m/debian bookworm main", "deb http://m/debian bookworm-updates main",
    ]  # fmt: skip
    assert "deb http://s bookworm-security main" in plan.sources_list("http://m", "http://s")
    proxies = {"http_proxy": "http://p:1", "HTTP_PROXY": "http://p:1"}
    text = plan.apt_configuration('Acquire::Retries "3";\n', proxies, ca=True)
    assert 'Acquire::Retries "3";' in text and 'Acquire::http::Proxy "http://p:1";' in text
    assert "https::Proxy" not in text
    assert 'Acquire::https::CAInfo "/mnt/ca.crt";' in text
    assert "CAInfo" not in plan.apt_configuration("", {}, ca=False)
