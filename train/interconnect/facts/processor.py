"""Cores, memory and limits: what slows a rank without any fault of the network."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from pathlib import Path

from train.interconnect.facts.probe import Answer, fact, read
from train.interconnect.facts.record import Fact

_CPU = "sys/devices/system/cpu"


def processor(root: Path = Path("/")) -> Iterator[Fact]:
    yield fact("processor", "model", _model(read(root / "proc/cpuinfo")))
    yield fact("processor", "cores", Answer(str(os.cpu_count())))
    yield fact("processor", "hyper-threading", read(root / _CPU / "smt/control"))
    yield fact("processor", "frequency governor", _governor(root))
    nodes = sorted(p.name for p in (root / "sys/devices/system/node").glob("node[0-9]*"))
    count = Answer(str(len(nodes))) if nodes else Answer(None, "not told")
    yield fact("processor", "NUMA nodes", count)
    told = read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", told.text or "")
    yield fact("processor", "transparent huge pages",
               Answer(chosen[1] if chosen else None, told.why))  # fmt: skip
    total = re.search(r"MemTotal:\s+(\d+) kB", read(root / "proc/meminfo").text or "")
    # some kilobytes differ between equal nodes
    memory = f"{round(int(total[1]) / 2**20)} GiB" if total else None
    yield fact("processor", "memory", Answer(memory, None if memory else "not told"))
    yield fact("processor", "memory that may be locked", Answer(_locked()))
    yield fact("processor", "load", _load(read(root / "proc/loadavg")), "own")


def _model(told: Answer) -> Answer:
    for line in (told.text or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model"):
            return Answer(value.strip())
    return Answer(None, told.why or "cpuinfo names no model")


def _governor(root: Path) -> Answer:
    files = sorted((root / _CPU).glob("cpu[0-9]*/cpufreq/scaling_governor"))
    found = {text for file in files if (text := read(file).text)}
    if found:
        return Answer(" ".join(sorted(found)))
    return Answer(None, "no cpufreq: a virtual machine, or the driver is not loaded")


def _locked() -> str:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "unlimited" if soft == resource.RLIM_INFINITY else f"{soft} bytes"


def _load(told: Answer) -> Answer:
    return Answer(told.text.split()[0] if told.text else None, told.why)
