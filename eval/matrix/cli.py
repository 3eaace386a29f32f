"""The commands `modegraph eval run`, `modegraph eval diff` and `modegraph eval ragas`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import print_json, say

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

Config = Annotated[Path, typer.Argument(help="YAML: tasks, retrievers, indexes, models and metrics.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE laid over the file; data= is then relative to here.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def register(commands: typer.Typer, open_model: OpenModel, run_command: Callable[[Sequence[str]], int]) -> None:
    """Add `run`, `diff` and `ragas` to the commands of `eval`; `run_command` runs a command line of the whole program."""

    @commands.command()
    def run(
        config: Config,
        settings: Overrides = None,
        out: Annotated[
            Path | None,
            typer.Option(help="Folder for cells, indexes and report; default runs/eval-NAME. A later run goes on."),
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Systems × tasks: every retriever, index and model on every task, with intervals, costs and a report to click through.

        Finished cells are kept: a run that was stopped goes on. Exit status 1 when a cell could not be filled.
        """
        from eval.matrix.runner import run_matrix

        folder = out or _run_folder(config)
        ended = run_matrix(config, settings or [], folder, open_model, run_command)
        print_json(ended.json) if as_json else print(ended.text)
        say(f"report: {folder / 'report.html'}")
        if ended.failed:
            raise typer.Exit(1)

    commands.command("diff")(diff)
    commands.command("ragas")(ragas)


def _run_folder(config: Path) -> Path:
    return Path("runs") / f"eval-{config.stem}"


def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="The folder of a run of `modegraph eval run`.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one over the same questions.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """What changed from run A to run B: every system and task that both have, question by question, with corrected tests."""
    from eval.matrix.report.diff import diff_json, diff_runs, diff_text

    found = diff_runs(a, b, seed)
    print_json(diff_json(found)) if as_json else print(diff_text(found))


def ragas(
    config: Config,
    settings: Overrides = None,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the finished run of this configuration; default runs/eval-NAME.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the files; default ragas/ in the run's folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """A finished run as data sets for ragas: for every system and task a file that EvaluationDataset.from_jsonl reads.

    Passages are kept of the questions that the report shows: `shown_questions` of the configuration says how many.
    """
    from dataclasses import asdict

    from eval.matrix.ragas import write_ragas

    folder = run or _run_folder(config)
    written = write_ragas(config, settings or [], folder, out or folder / "ragas")
    if as_json:
        print_json({"files": [{**asdict(one), "file": str(one.file)} for one in written]})
        return
    for one in written:
        print(f"{one.file}: {one.system} on {one.task}, {one.rows:,} of {one.questions:,} questions")
