"""Which account, partition, QoS, ... a job asks for: what the command line says (ACCOUNT=), else
the site file, else the variables by which the user tells sbatch and srun the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from pydantic import ValidationError

from jobs.config.site import NamedSite, Site
from jobs.config.yamlfile import problem_of
from train.errors import ConfigError

#: Key of a site file -> how the variables of Slurm's programs for the same end. The manuals of
#: 22.05: sbatch reads SBATCH_ACCOUNT and SLURM_CLUSTERS, srun SLURM_ACCOUNT, salloc SALLOC_ACCOUNT.
_ENDINGS = {
    "account": "ACCOUNT", "partition": "PARTITION", "qos": "QOS", "reservation": "RESERVATION",
    "constraint": "CONSTRAINT", "wckey": "WCKEY", "time_min": "TIMELIMIT", "cluster": "CLUSTERS",
}  # fmt: skip
_COUNTING = ("SBATCH_", "SLURM_")
#: Key of a site file -> the make variable, and option of a command, that wins over it.
OPTIONS = {"account": "ACCOUNT", "partition": "PARTITION", "qos": "QOS", "time_min": "TIME"}


class Setting(NamedTuple):
    """What somebody asks for, and in which words."""

    name: str
    text: str
    value: str | int

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


def decide(
    environment: Mapping[str, str], named: NamedSite, options: Mapping[str, str]
) -> tuple[NamedSite, tuple[str, ...]]:
    """The site as it counts, and a sentence on each setting that is ignored, and on each variable
    of the user that is used.

    ``options``: by the keys of :data:`OPTIONS`; empty text: not given.

    Raises:
        ConfigError: an option or a variable says what a site file may not say.
    """
    site, file = named.site, f"site file {named.source.name}"
    given = {key: _setting(OPTIONS[key], key, text) for key, text in options.items() if text}
    written = {key: getattr(site, key) for key in site.model_fields_set}
    words = {key: f"{key}: {'null' if value is None else value}" for key, value in written.items()}
    variables, remarks = user_settings(environment)
    used = dict(given)
    for key, setting in variables.items():
        if key not in given and key not in written:
            used[key] = setting
            remarks.append(f"{setting} is used: {file} has no {key}:")
        elif key in given and setting.value != given[key].value:
            remarks.append(f"{setting} is ignored: {given[key]} was given")
        elif key not in given and setting.value != written[key]:
            remarks.append(f"{setting} is ignored: {file} has {words[key]}")
    for key, setting in given.items():
        if written.get(key, setting.value) != setting.value:
            remarks.append(f"{words[key]} of {file} is ignored: {setting} was given")
    if not used:
        return named, tuple(remarks)
    values = site.model_dump(exclude_unset=True) | {key: one.value for key, one in used.items()}
    try:
        return replace(named, site=Site.model_validate(values)), tuple(remarks)
    except ValidationError as error:
        asked = ", ".join(map(str, used.values()))
        raise ConfigError(f"{asked}: {problem_of(Site, values, error)[1]}") from error


def user_settings(environment: Mapping[str, str]) -> tuple[dict[str, Setting], list[str]]:
    """What the user's variables say, by key of a site file, and a sentence on those of sbatch and
    salloc that are not used at all."""
    found: dict[str, Setting] = {}
    remarks = []
    others = {name for name, text in environment.items() if name.startswith("SBATCH_") and text}
    for key, ending in _ENDINGS.items():
        for name in (f"{program}{ending}" for program in _COUNTING):
            text = environment.get(name, "")
            others.discard(name)
            try:
                setting = _setting(name, key, text)
            except ConfigError as error:
                remarks.append(f"{name} is ignored: {error}")
                continue
            if text and key not in found:
                found[key] = setting
            elif text and found[key].value != setting.value:
                remarks.append(f"{setting} is ignored: {found[key]} comes first")
        # a partition for interactive work is none for batch jobs
        text = environment.get(name := f"SALLOC_{ending}", "")
        if text and (key not in found or found[key].text != text):
            remarks.append(f"{name}={text} is ignored: only salloc reads it")
    if others:
        remarks.append(
            f"{', '.join(sorted(others))}: ignored; what jobs are to ask for besides belongs into "
            "the site file (sbatch: {...})"
        )
    return found, remarks


def _setting(name: str, key: str, text: str) -> Setting:
    """Raises ConfigError where a time is none."""
    if key != "time_min" or not text:
        return Setting(name, text, text)
    if minutes := minutes_of(text):
        return Setting(name, text, minutes)
    raise ConfigError(
        f"{name}={text}: expected a time in Slurm's form: minutes, H:MM:SS or D-HH:MM:SS"
    )


def minutes_of(text: str) -> int | None:
    """Whole minutes, rounded up, from one of the forms of sbatch --time: M, M:S, H:M:S, D-H, D-H:M,
    D-H:M:S; None for anything else, and for no time at all."""
    parts = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7})(?::(\d{1,5}))?(?::(\d{1,5}))?", text.strip())
    if parts is None:
        return None
    days, *rest = parts.groups()
    numbers = [int(part) for part in rest if part is not None]
    if days is None and len(numbers) < 3:
        numbers = [0, *numbers]  # minutes come first
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    return (int(days or 0) * 24 + hours) * 60 + minutes + -(-seconds // 60) or None
