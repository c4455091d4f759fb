"""A sweep: the ordered, unique configs of its cells."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from train.config.datasets import FOLDER_PREFIX
from train.config.run import RunConfig
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

    @property
    def asked(self) -> str:
        """As SWEEP= names it."""
        return self.source.stem if self.source.parent == SWEEPS else str(self.source)

    @property
    def image_folders(self) -> tuple[Path, ...]:
        """Folders of images that are data sets of its cells, each once."""
        names = dict.fromkeys(config.dataset for config in self.configs)
        return tuple(
            Path(name.removeprefix(FOLDER_PREFIX)).expanduser().absolute()
            for name in names
            if name.startswith(FOLDER_PREFIX)
        )


def manifest_of(wanted: Sweep) -> SweepManifest:
    return SweepManifest(
        name=wanted.name,
        title=wanted.title,
        cells=tuple(config.cell_id() for config in wanted.configs),
        techniques=wanted.techniques,
    )
