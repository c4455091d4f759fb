"""A sweep: the ordered, unique configs of its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from train.config.networks import model_label
from train.config.run import RunConfig
from train.errors import ConfigError
from train.record.run import SweepManifest

SWEEPS = Path(__file__).parent.parent / "sweeps"
#: Analysis compares with this technique, where a sweep has it.
REFERENCE = "naive"
DATA = Path(__file__).parents[2] / ".data"


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
    networks: Mapping[str, bytes] = field(default_factory=dict)  # sha256 -> content of the file
    remarks: tuple[str, ...] = ()  # what the user should know of the cells

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


def without_repeats(
    configs: Sequence[RunConfig],
) -> tuple[tuple[RunConfig, ...], tuple[str, ...]]:
    """The cells without those that are the same condition as another, and a sentence on these.

    A network that runs as built is the same with normalisation none and batch_norm. Of the rows of
    a condition the reference stays, or the first; it has the seeds of all.
    """
    if not any(config.runs_as_built for config in configs):
        return tuple(configs), ()
    kept: dict[RunConfig, RunConfig] = {}
    for config in sorted(configs, key=lambda config: config.technique.name != REFERENCE):
        kept.setdefault(_as_built(config), config)
    rows = {config: kept[_as_built(config)].technique for config in configs}
    remarks = (
        f"{config.technique.name} is left out for {model_label(config.model)}: the network runs as "
        f"built, so it is the same condition as {row.name}"
        for config, row in rows.items()
        if row != config.technique
    )
    named = {c: c.model_copy(update={"technique": row}) for c, row in rows.items()}
    cells = (new for c, new in named.items() if new == c or new not in rows)
    return tuple(dict.fromkeys(cells)), tuple(dict.fromkeys(remarks))


def _as_built(config: RunConfig) -> RunConfig:
    """Equal for cells of one condition, whatever their seed."""
    row = config.technique
    if not config.runs_as_built or row.normalisation not in ("none", "batch_norm"):
        return config.model_copy(update={"seed": 0})
    alike = row.model_copy(update={"name": "", "normalisation": "none"})
    return config.model_copy(update={"technique": alike, "seed": 0})
