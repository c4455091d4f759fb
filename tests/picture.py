"""docs/report.png, the first screen of a report as a browser shows it: `python -m tests.picture`
replaces it (Chromium). The file holds its sentences, which a test compares with the code's."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from analysis.page.report import Report, build
from analysis.page.write import render
from analysis.records.load import load_frames
from tests.measured import MEASURED, ROOT

PICTURE = ROOT / "docs" / "report.png"
SWEEP = "cifar10_techniques"
#: Where the picture keeps its sentences; a text chunk of PNG.
DESCRIPTION = "Description"
#: Of the first screen, in pixels.
SIZE = (1280, 1080)


def report(*, draw: bool) -> Report:
    return build(load_frames(MEASURED / SWEEP, cache=False), draw=draw)


def sentences(shown: Report) -> str:
    """Title, answers and cautions, one a line."""
    texts = [one.text for one in (*shown.answers, *shown.cautions)]
    return "\n".join([shown.title, *texts])


def described(picture: Path = PICTURE) -> str:
    with Image.open(picture) as image:
        return str(image.info.get(DESCRIPTION))


def main() -> None:
    shown = report(draw=True)
    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "report.html", Path(folder) / "report.png"
        page.write_text(render(shown))
        subprocess.run(
            [shutil.which("chromium") or "chromium", "--headless", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", f"--user-data-dir={folder}/profile", f"--screenshot={shot}",
             f"--window-size={SIZE[0]},{SIZE[1]}", "--virtual-time-budget=3000", page.as_uri()],
            check=True, timeout=600,
        )  # fmt: skip
        info = PngInfo()
        info.add_text(DESCRIPTION, sentences(shown))
        with Image.open(shot) as image:
            # 256 colours are a third of the size, and the eye sees no difference
            image.convert("P", palette=Image.Palette.ADAPTIVE).save(
                PICTURE, pnginfo=info, optimize=True
            )


if __name__ == "__main__":
    main()
