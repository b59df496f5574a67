"""`python -m vmivae.comparison comparisons/mnist5k.yaml`: run a grid's experiments, then write its page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmivae import stage
from vmivae.comparison.grid import load_grid
from vmivae.comparison.page import write_page
from vmivae.comparison.queue import Queue
from vmivae.comparison.rows import read_rows
from vmivae.comparison.table import compare, csv_rows
from vmivae.files import together, write_csv
from vmivae.tracking.store import main_root


def main(
    grid: Annotated[Path, typer.Argument(help="the grid file, such as comparisons/mnist5k.yaml")],
    jobs: Annotated[int, typer.Option(min=1, help="experiments at a time")] = 1,
) -> None:
    """Run what DVC does not have of a grid through its queue; write a page and a CSV beside the grid file."""
    root = main_root()
    title, runs = load_grid(grid, root)
    with stage.ProgressReporter() as progress:
        Queue(root).run(runs, jobs, progress)
    metrics = read_rows(root, [run.experiment for run in runs])
    lines = compare(runs, metrics)
    with together():
        write_page(grid.with_suffix(".html"), title, f"make compare GRID={grid}", lines, runs, metrics)
        write_csv(grid.with_suffix(".csv"), csv_rows(lines))
    print(f"{len(runs)} runs compared: {grid.with_suffix('.html')} and {grid.with_suffix('.csv')}")


if __name__ == "__main__":
    stage.run(main, again="the same command goes on", keys_of="")
