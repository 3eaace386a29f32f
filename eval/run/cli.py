"""The commands `modegraph eval run`, `modegraph eval diff` and `modegraph eval ragas`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import INPUT, Command, command
from graph.shared.cli_options import AsJson, Seed, Set, SomeOut
from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.types import OpenModel

MATRIX_SETTINGS = "eval.run.config:MatrixSettings"
Matrix = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML file of tasks, retrievers, indexes, models and metrics.")
]
EvalRunA = Annotated[Path, typer.Argument(metavar="A", help="Folder of a run of `modegraph eval run`.")]
EvalRunB = Annotated[Path, typer.Argument(metavar="B", help="Folder of another run, over the same questions.")]
FinishedRun = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=INPUT,
        help="Folder of the finished run of CONFIG; runs/eval-NAME by default.",
    ),
]


def add_run(commands: typer.Typer, open_model: OpenModel, run_command: Callable[[Sequence[str]], int]) -> None:
    """Add `run`, `diff` and `ragas` to the commands of `eval`; `run_command` runs a command line of the whole program."""

    @commands.command(cls=command(settings=MATRIX_SETTINGS))
    def run(
        config: Matrix,
        settings: Set = None,
        out: SomeOut = None,
        as_json: AsJson = False,
    ) -> None:
        """Measure every retriever, index and model on every task, and write a report.

        --out is runs/eval-NAME by default; finished cells in it are reused, so that a later run resumes. A `data` path in --set is relative
        to this folder, one in CONFIG to the folder of that file. Exits with 1 when a cell could not be filled.
        """
        from eval.run.runner import run_matrix

        folder = out or _run_folder(config)
        report = run_matrix(config, settings or [], folder, open_model, run_command)
        print_json(report.json) if as_json else print(report.text)
        say(f"report: {folder / 'report.html'}")
        if report.failed:
            raise typer.Exit(1)

    commands.command("diff", cls=Command)(diff)
    commands.command("ragas", cls=command(settings=MATRIX_SETTINGS))(ragas)


def _run_folder(config: Path) -> Path:
    return Path("runs") / f"eval-{config.stem}"


def diff(
    run_a: EvalRunA,
    run_b: EvalRunB,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Show what changed from run A to run B, question by question.

    Covers every system and task that both runs have; the tests are corrected for their number.
    """
    from eval.run.diff import diff_json, diff_runs, diff_text

    differences = diff_runs(run_a, run_b, seed)
    print_json(diff_json(differences)) if as_json else print(diff_text(differences))


def ragas(
    config: Matrix,
    settings: Set = None,
    run: FinishedRun = None,
    out: SomeOut = None,
    as_json: AsJson = False,
) -> None:
    """Write a finished run as data sets for ragas.

    Writes a file for each system and task, readable by EvaluationDataset.from_jsonl, into --out (by default ragas/ in the run's folder).
    It holds the questions that the report shows; `shown_questions` of CONFIG sets their number.
    """
    from dataclasses import asdict

    from eval.run.ragas import write_ragas

    folder = run or _run_folder(config)
    written = write_ragas(config, settings or [], folder, out or folder / "ragas")
    if as_json:
        print_json({"files": [{**asdict(file), "file": str(file.file)} for file in written]})
        return
    for file in written:
        print(f"{file.file}: {file.system} on {file.task}, {file.rows:,} of {file.questions:,} questions")
