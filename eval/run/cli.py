"""The commands `modegraph eval run` and `modegraph eval diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import Command, command
from graph.shared.cli_options import AsJson, Seed, Set, SomeOut
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.types import OpenModel

Matrix = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML file of tasks, retrievers, indexes, models and metrics.")
]
EvalRunA = Annotated[Path, typer.Argument(metavar="A", help="Folder of a run of `modegraph eval run`.")]
EvalRunB = Annotated[Path, typer.Argument(metavar="B", help="Folder of another run, on the same questions.")]


def add_run(commands: typer.Typer, open_model: OpenModel) -> None:
    """Add `run` and `diff` to the commands of `eval`."""

    @commands.command(cls=command(settings="eval.run.config:MatrixSettings"))
    def run(config: Matrix, settings: Set = None, out: SomeOut = None, as_json: AsJson = False) -> None:
        """Measure every retriever, index and model on every task, and write a report.

        --out is runs/eval-NAME by default for a CONFIG named NAME.yaml. Finished cells in this folder are reused, even after a change
        to the code; to measure the change, give a new folder. A cell holds the results of one system on one task. A `data` path in
        --set is relative to the working directory, one in CONFIG to the folder of that file. Exits with 1 when a cell could not be filled.
        """
        from eval.run.run import run_matrix
        from eval.run.run_report import report_json, report_text

        folder = out or Path("runs") / f"eval-{config.stem}"
        report = run_matrix(config, settings or [], folder, open_model)
        print_json(report_json(report)) if as_json else print(report_text(report))
        say(f"report: {folder / 'report.html'}")
        if report.failures:
            raise typer.Exit(1)

    commands.command("diff", cls=Command)(diff)


def diff(run_a: EvalRunA, run_b: EvalRunB, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Show what changed from run A to run B, question by question.

    Covers every system and task that both runs have; p-values are corrected for multiple comparisons.
    """
    from eval.run.diff import diff_json, diff_runs, diff_text

    differences = diff_runs(run_a, run_b, seed)
    print_json(diff_json(differences)) if as_json else print(diff_text(differences))
