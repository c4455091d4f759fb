"""Which account, partition, QoS, ... a job asks for: what the command line says (ACCOUNT=), else
the site file, else the variables by which the user tells sbatch and srun the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from pydantic import ValidationError

from jobs.config.site import NamedSite, Site, place_of
from jobs.config.yamlfile import problem_of
from jobs.messages import seconds_of
from train.errors import ConfigError

#: Key of a site file -> how the variables of Slurm's programs for the same end. The manuals of
#: 22.05: sbatch reads SBATCH_ACCOUNT and SLURM_CLUSTERS, srun SLURM_ACCOUNT.
_ENDINGS = {
    "account": "ACCOUNT", "partition": "PARTITION", "qos": "QOS", "reservation": "RESERVATION",
    "constraint": "CONSTRAINT", "wckey": "WCKEY", "time_min": "TIMELIMIT", "cluster": "CLUSTERS",
    "slurm_conf": "CONF",
}  # fmt: skip
#: Variables of sbatch that are not called as its option.
_OPTIONS = {"ARRAY_INX": "array", "CPU_FREQ_REQ": "cpu-freq", "DEBUG": "verbose",
            "MEM_PER_NODE": "mem", "REQ_SWITCH": "switches"}  # fmt: skip
#: Key of a site file -> the make variable, and option of a command, that wins over it.
OPTIONS = {"account": "ACCOUNT", "partition": "PARTITION", "qos": "QOS", "time_min": "TIME"}


class Setting(NamedTuple):
    """What somebody asks for: in which words, and as a site file has it."""

    words: str
    value: str | int | None

    def __str__(self) -> str:
        return self.words


def decide(
    environment: Mapping[str, str], named: NamedSite, options: Mapping[str, str]
) -> tuple[NamedSite, list[str]]:
    """The site as it counts, and a sentence on each setting that is ignored, and on each variable
    of the user that is used.

    ``options``: by the keys of :data:`OPTIONS`; empty text: not given.

    Raises:
        ConfigError: an option or a variable says what a site file may not say.
    """
    site, file = named.site, f"site file {named.source.name}"
    given, (variables, remarks) = settings_of(options), user_settings(environment)
    written = {key: getattr(site, key) for key in _ENDINGS if key in site.model_fields_set}
    texts = {key: "null" if value is None else value for key, value in written.items()}
    of_file = {key: Setting(f"{key}: {texts[key]} of {file}", written[key]) for key in written}
    if site.slurm_conf is None:  # which says the same as no key
        of_file.pop("slurm_conf", None)
    used = {}
    for key in _ENDINGS:
        layers = [layer[key] for layer in (given, of_file, *variables) if key in layer]
        if not layers:
            continue
        first, *others = layers
        for other in others:
            if other.value != first.value:
                ours = key == "partition" and other is of_file.get(key)
                kept = "; its ranks_per_node, gpus and image count" if ours else ""
                remarks.append(f"{other} is ignored: {first} comes first{kept}")
        # the shell's own cluster is no surprise, and its nodes know their configuration
        if first is not of_file.get(key) and key != "slurm_conf":
            used[key] = first
            if key not in given:
                remarks.append(f"{first} is used: {file} has no {key}:")
    if not used:
        return named, remarks
    values = site.model_dump(exclude_unset=True) | {key: one.value for key, one in used.items()}
    try:
        return replace(named, site=Site.model_validate(values)), remarks
    except ValidationError as error:
        asked = ", ".join(map(str, used.values()))
        raise ConfigError(f"{asked}: {problem_of(Site, values, error)[1]}") from error


def settings_of(options: Mapping[str, str]) -> dict[str, Setting]:
    """What the command line says, by key of a site file; raises ConfigError as :func:`decide`."""
    given = {key: text.strip() for key, text in options.items()}
    return {key: _setting(OPTIONS[key], key, text) for key, text in given.items() if text}


def user_settings(
    environment: Mapping[str, str],
) -> tuple[list[dict[str, Setting]], list[str]]:
    """What the user's variables for sbatch say, and then those for srun, by key of a site file; and
    a sentence on those that are not used at all. Blanks around a value do not count."""
    texts = {name: text.strip() for name, text in environment.items() if text.strip()}
    others = {name for name in texts if name.startswith("SBATCH_")}
    found: list[dict[str, Setting]] = []
    remarks = []
    for program in ("SBATCH", "SLURM"):
        found.append({})
        for key, ending in _ENDINGS.items():
            name = f"{program}_{ending}"
            others.discard(name)
            try:
                if name in texts:
                    found[-1][key] = _setting(name, key, texts[name])
            except ConfigError as error:
                remarks.append(f"{name} is ignored: {error}")
    for name in sorted(others):
        ending = name.removeprefix("SBATCH_")
        option = _OPTIONS.get(ending, ending.lower().replace("_", "-"))
        remarks.append(f"{name} is ignored: --{option} {place_of(option)}")
    return found, remarks


def _setting(name: str, key: str, text: str) -> Setting:
    """Raises ConfigError where a time is none."""
    words = f"{name}={text}"
    if key != "time_min":
        return Setting(words, text)
    if seconds := seconds_of(text):
        return Setting(words, math.ceil(seconds / 60))
    raise ConfigError(f"{words}: expected a time in Slurm's form: minutes, H:MM:SS or D-HH:MM:SS")
