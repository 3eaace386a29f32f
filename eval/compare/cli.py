"""The command `modegraph compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.console import print_json, say
from graph.shared.errors import UserError

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the choice of questions and of the bootstrap.")]


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `compare` to the command line."""
    from eval.shared.spread import SpreadingCommand

    @app.command(cls=SpreadingCommand)
    def compare(
        runs: Annotated[
            list[Path],
            typer.Option("--runs", help="Run folders, one or several (--runs A B C); differences are from the first."),
        ],
        data: Annotated[Path, typer.Option(help="Folder of preference data, as `synth preferences` makes it.")],
        split: Annotated[str, typer.Option(help="Which rows to ask and score: train, dev or test.")] = "test",
        base: Annotated[
            str | None, typer.Option(help="The untuned model (folder or name); by default the root of the first run.")
        ] = None,
        context_size: Annotated[str, typer.Option(help="Only rows over this many excerpts, or 'all'.")] = "all",
        max_answer_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 256,
        out: Annotated[Path, typer.Option(help="Folder for the report; its files are replaced.")] = Path("comparison"),
        limit: Annotated[
            int | None, typer.Option(min=1, help="At most this many questions, drawn by the seed.")
        ] = None,
        responses: Annotated[
            Path | None,
            typer.Option(
                help="Folder of scored responses: adds expected reward, KL and entropy of the preference runs."
            ),
        ] = None,
        samples: Annotated[int, typer.Option(min=2, help="With --responses: samples of each prompt.")] = 16,
        seed: Seed = 0,
        as_json: AsJson = False,
    ) -> None:
        """Compare fine-tuned runs and their untuned model on held-out rows: answers, margins, log-probabilities."""
        size = read_context_size(context_size)
        from eval.compare.report import to_json, write_report
        from eval.compare_runs import compare_runs
        from eval.shared.tables import as_text, choice_table, measure_table

        comparison, appendix = compare_runs(
            runs,
            data,
            open_model,
            split=split,
            base=base,
            context_size=size,
            max_answer_tokens=max_answer_tokens,
            limit=limit,
            responses=responses,
            samples=samples,
            seed=seed,
        )
        write_report(comparison, out, appendix)
        say(f"report: {out / 'report.html'}")
        if as_json:
            print_json(to_json(comparison) | (appendix.data if appendix else {}))
            return
        shown = [measure_table(comparison), *([choice_table(comparison)] if comparison.choices else [])]
        print("\n\n".join(as_text(table) for table in (*shown, *(appendix.tables if appendix else ()))))


def read_context_size(text: str) -> int | None:
    """ "all" to None, a whole number to itself; UserError for anything else."""
    if text == "all":
        return None
    if not text.isdecimal():
        raise UserError(f"--context-size {text}", "a number of excerpts, or all", "change the value")
    return int(text)
