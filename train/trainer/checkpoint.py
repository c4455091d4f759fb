"""Files that hold weights: the checkpoint from which training goes on exactly, and weights.h5."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from train.config.frozen import Frozen
from train.config.run import RunConfig
from train.errors import ConfigError, read_whole
from train.record.atomic import write_atomically
from train.record.cell_folder import EPOCHS_NAME, read_epochs
from train.record.measurements import EpochRecord
from train.record.run import Provenance, World
from train.step.adascale import AdaScale
from train.tensorflow_internals import save_weights_to_hdf5_group


class Origin(Frozen):
    """What epochs ran on and from. Another host with the same devices is no difference."""

    device: str
    ranks: int
    nodes: int
    commit: str  # empty: unknown
    image: str  # sha256 of the container image; empty: none

    @classmethod
    def of(cls, world: World, provenance: Provenance) -> Origin:
        return cls(
            device=world.device, ranks=world.size, nodes=world.nodes,
            commit=(provenance.git_commit or "") + ", changed" * bool(provenance.git_dirty),
            image=provenance.image_digest or "",
        )  # fmt: skip

    def changes(self, before: Origin) -> str:
        """What is not as before, in words; empty: nothing."""
        pairs = ((name, getattr(before, name), getattr(self, name)) for name in self.model_fields)
        return ", ".join(
            f"{name} {now or 'none'} (before: {then or 'none'})"
            for name, then, now in pairs
            if now != then
        )


class Progress(Frozen):
    """What had been done when the checkpoint was written, at the end of an epoch."""

    last: EpochRecord  # those before it are in epochs.jsonl
    last_rate: float | None  # of the last step that was applied, if one was
    position: float  # of the schedule's clock
    adascale: AdaScale | None
    skipped_in_a_row: int  # steps up to the last one
    alarms: tuple[str, ...]
    oversubscribed: bool  # in one of these epochs
    origin: Origin
    origin_from: int  # epochs before the first one of this origin


def _identity(config: RunConfig, fingerprint: str) -> str:
    """A checkpoint belongs to one config on one data set and network; any other is refused."""
    return hashlib.sha256((config.digest() + fingerprint).encode()).hexdigest()


def _named(variables: Sequence[Any]) -> dict[str, Any]:
    count: Counter[str] = Counter()
    named = {}
    for variable in variables:
        count[variable.name] += 1
        number = count[variable.name]
        named[variable.name if number == 1 else f"{variable.name} {number}"] = variable
    return named


def save(
    path: Path, config: RunConfig, fingerprint: str, variables: Sequence[Any], progress: Progress
) -> None:
    """Write the whole state atomically (rank 0 only); after an OSError, as of a full disk, the
    older checkpoint is as it was."""
    arrays = {name: variable.numpy() for name, variable in _named(variables).items()}
    # names that no variable has: theirs contain a colon
    arrays["identity"] = np.array(_identity(config, fingerprint))
    arrays["progress"] = np.frombuffer(progress.model_dump_json().encode(), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getbuffer())


def restore(
    path: Path, config: RunConfig, fingerprint: str, variables: Sequence[Any]
) -> tuple[Progress, list[EpochRecord]] | None:
    """Load the state into ``variables`` (rank 0 only).

    A damaged file or one of another config, data set or version of this code is not an error, nor
    is one whose earlier epochs are not in the same folder: the cell starts from the beginning.
    Nothing is loaded before all of it has been read.

    Returns:
        What had been done, and all epochs of it; None if there is nothing usable.

    Raises:
        Unreadable: a file cannot be read now, and a run from the beginning would replace it.
    """
    content, _ = read_whole(path), read_whole(path.parent / EPOCHS_NAME)
    try:
        with np.load(io.BytesIO(content or b""), allow_pickle=False) as stored:
            values = dict(stored)
        identity = values.pop("identity").item()
        progress = Progress.model_validate_json(values.pop("progress").tobytes())
    except Exception:  # noqa: BLE001  (no list is long enough for what damaged bytes may raise)
        return None
    epochs = [*read_epochs(path.parent)[: progress.last.epoch - 1], progress.last]
    named = _named(variables)
    if (
        identity != _identity(config, fingerprint)
        or [epoch.epoch for epoch in epochs] != [*range(1, len(epochs) + 1)]
        or {name: value.shape for name, value in values.items()}
        != {name: tuple(variable.shape) for name, variable in named.items()}
    ):
        return None
    for name, variable in named.items():
        variable.assign(values[name])
    return progress, epochs


def weights_file(network: tf.keras.Model) -> memoryview:
    """What plain Keras loads into a network that is built alike.

    Raises:
        ConfigError: Keras cannot write such a network to HDF5.
    """
    content = io.BytesIO()
    try:
        with h5py.File(content, "w") as file:
            save_weights_to_hdf5_group(file, network)
    except (ValueError, RuntimeError) as error:  # two of one name, or too many for a header
        raise ConfigError(
            f"keep_weights: Keras cannot write the weights of this network to HDF5 ({error}): give "
            "each weight of a layer, and each layer within nested models, a name of its own"
        ) from error
    return content.getbuffer()
