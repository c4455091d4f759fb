"""The table of docs/own-network.md: networks of keras.applications through `train check`, one after
another. `python -m tests.bench.applications [NAME...]` prints it, row by row."""

from __future__ import annotations

import sys

from tests.sweeps import ROOT, ran

#: Name -> side of the images: 32 pixels, or the smallest that the network takes.
SIDES = {
    "MobileNetV2": 32, "MobileNetV3Small": 32, "EfficientNetB0": 32, "EfficientNetV2B0": 32,
    "ResNet50": 32, "ResNet50V2": 32, "DenseNet121": 32, "NASNetMobile": 32, "ConvNeXtTiny": 32,
    "VGG16": 32,
}  # fmt: skip
SHOWN = ("parameters", "ranks", "resume", "accumulation", "ghosts", "synchronised", "muon", "step",
         "memory")  # fmt: skip


def main(names: list[str]) -> None:
    print(f"| network | {' | '.join(SHOWN)} |\n|---|{'---|' * len(SHOWN)}", flush=True)
    for name in names or SIDES:
        side = SIDES[name]
        argv = [sys.executable, "-m", "train", "check", f"keras.applications.{name}"]
        done = ran([*argv, "--input", f"{side}x{side}x3"], cwd=ROOT)
        rows = (line.split(maxsplit=2) for line in done.stdout.splitlines())
        found = {what: cell(verdict, text) for verdict, what, text in rows}
        said = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        shown = (found.get(what, "") for what in SHOWN)
        print(
            f"| `{name}` | {' | '.join(shown)} | {' '.join(said)}".rstrip(" |") + " |", flush=True
        )


def cell(verdict: str, text: str) -> str:
    """What was found, in a word or a number."""
    if verdict != "-":
        return verdict
    start = text.partition(":")[0].partition(",")[0]
    return text.partition(", ")[0] if text[0].isdigit() else start


if __name__ == "__main__":
    main(sys.argv[1:])
