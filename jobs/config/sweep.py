"""A sweep: the ordered, unique configs of its cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from train.config.run import RunConfig
from train.errors import ConfigError
from train.record.run import SweepManifest

SWEEPS = Path(__file__).parent.parent / "sweeps"


@dataclass(frozen=True)
class Sweep:
    name: str
    title: str
    source: Path
    configs: tuple[RunConfig, ...]  # expanded, in the order of the file, each once
    techniques: tuple[str, ...]  # order of the rows in reports
    cores_per_rank: int | None
    #: Of the data sets and the pretrained weights: name -> line of the file.
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def asked(self) -> str:
        """As SWEEP= names it."""
        return self.source.stem if self.source.parent == SWEEPS else str(self.source)

    def error(self, value: str, text: str) -> ConfigError:
        """``text`` with the line on which the file has the data set or weights ``value``."""
        line = f":{self.lines[value]}" if value in self.lines else ""
        return ConfigError(f"{self.source}{line}: {text}")


def manifest_of(wanted: Sweep) -> SweepManifest:
    return SweepManifest(
        name=wanted.name,
        title=wanted.title,
        cells=tuple(config.cell_id() for config in wanted.configs),
        techniques=wanted.techniques,
    )
