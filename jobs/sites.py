"""Site files: jobs/sites/*.yaml, read strictly."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from jobs.site import Site
from jobs.suggest import unknown
from jobs.yamlfile import Document, load_yaml
from train.config import ConfigError

SITES = Path(__file__).with_name("sites")
_SUFFIXES = (".yaml", ".yml")
#: Words of SITE= that stand for no file.
AUTO, LOCAL = "auto", "local"


@dataclass(frozen=True)
class NamedSite:
    name: str
    site: Site
    source: Path


def load_site(name_or_path: str, folder: Path = SITES) -> NamedSite:
    """Read a site by its name in ``folder`` or by its path.

    Raises:
        ConfigError: no such site, or an error in its file: with the line, what was found, what is
            known and the nearest.
    """
    path = _find(name_or_path, folder)
    return NamedSite(path.stem, site_of(load_yaml(path)), path)


def site_names(folder: Path = SITES) -> list[str]:
    return sorted(path.stem for path in folder.glob("*") if path.suffix in _SUFFIXES)


def site_of(document: Document) -> Site:
    """The site that a file describes.

    Raises:
        ConfigError: with file and line: an unknown key, a missing one, a value that does not fit.
    """
    for key in document.value:
        if key not in Site.model_fields:
            raise document.error((key,), unknown("key", key, Site.model_fields))
    try:
        return Site.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        text = first["msg"].removeprefix("Value error, ")
        if first["type"] == "missing":
            raise document.error(
                (), f"{first['loc'][0]!r} is missing: a site must say it"
            ) from error
        if first["type"] != "value_error":
            text += f", found {first['input']!r}"
            text += "; quote it" if first["type"] == "string_type" else ""
        where = first["loc"][:1]
        # rules about several keys have no place of their own; the message starts with the key
        path = where or (text.split(":")[0].split(" ")[0],)
        raise document.error(path, f"{where[0]}: {text}" if where else text) from error


def _find(name_or_path: str, folder: Path) -> Path:
    if os.sep in name_or_path or name_or_path.endswith(_SUFFIXES):
        path = Path(name_or_path).expanduser()
        if not path.exists():
            known = ", ".join(site_names(folder))
            raise ConfigError(f"no site file {path}; sites known by name: {known or '(none)'}")
        return path
    for suffix in _SUFFIXES:
        path = folder / f"{name_or_path}{suffix}"
        if path.exists():
            return path
    raise ConfigError(
        f"{unknown('site', name_or_path, [AUTO, LOCAL, *site_names(folder)])}. "
        f"A site is a file under {folder}, or any path that ends in .yaml"
    )
