"""`make figures`: draw the figures of docs/figures from the tables in docs/results.md, the files in benchmarks/figures/data and the losses in train/.

PYTHONPATH=. python -P -m benchmarks.figures [--out docs/figures]
"""

import argparse
from pathlib import Path

from benchmarks.figures import batch, edits, gradients, modes, recall, study, walk
from benchmarks.figures.style import RESULTS, save

FIGURES = {
    "modes": modes.draw,
    "recall": recall.draw,
    "study": study.draw_runs,
    "frontiers": study.draw_frontiers,
    "edits": edits.draw,
    "walk": walk.draw,
    "batch": batch.draw,
    "gradients": gradients.draw,
}


def main() -> None:
    """Write each figure as SVG and PNG."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=RESULTS.parent / "figures", help="folder of the figures")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        save(draw(), folder, name)
        print(f"{folder / name}.svg, .png")


if __name__ == "__main__":
    main()
