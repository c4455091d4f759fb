"""Prints the tables of docs/results.md and draws its figures."""

from tests.measured.page import DRAWN, FIGURES, MEASURED, figures, side_by_side, sweeps, table

if __name__ == "__main__":
    for sweep in sweeps():
        print(f"{sweep.name}\n\n{table(sweep)}")
    print(side_by_side(MEASURED / "cifar10_techniques"))
    for sweep_name in dict.fromkeys(name for name, _ in FIGURES):
        for name, (svg, caption) in figures(sweep_name).items():
            (DRAWN / name).write_text(svg)
            print(f"![](figures/{name})\n*{caption}*\n")
