"""Site files: jobs/sites/*.yaml, read strictly."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from jobs.named import find_file, names_in
from jobs.site import Site
from jobs.suggest import unknown
from jobs.yamlfile import Document, load_yaml

SITES = Path(__file__).with_name("sites")
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
    path = find_file("site", name_or_path, folder, (AUTO, LOCAL))
    return NamedSite(path.stem, site_of(load_yaml(path)), path)


def site_names(folder: Path = SITES) -> list[str]:
    return names_in(folder)


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
