"""The commands of evaluation: `modegraph compare`, `modegraph eval retrieval` and `modegraph demo`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graph.console import print_json, say
from graph.errors import UserError

if TYPE_CHECKING:
    from graph.types import OpenModel

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the choice of questions and of the bootstrap.")]


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add the commands to the command line."""
    from eval.cli_lab import register as add_lab

    add_compare(app, open_model)
    add_eval(app, open_model)
    add_demo(app)
    add_lab(app, open_model)


def add_compare(app: typer.Typer, open_model: OpenModel) -> None:
    """`modegraph compare`."""
    from eval.spread import SpreadingCommand

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
        seed: Seed = 0,
        as_json: AsJson = False,
    ) -> None:
        """Compare fine-tuned runs and their untuned model on held-out rows: answers, margins, log-probabilities."""
        size = read_context_size(context_size)
        from eval.compare import compare as compare_policies
        from eval.policies import policies_of
        from eval.report import to_json, write_report
        from eval.rows import read_rows, select_rows
        from eval.tables import as_text, choice_table, measure_table
        from train.models import load_policy

        policies = policies_of(runs, base)
        rows = select_rows(read_rows(data, split), size, limit, seed)
        train_rows = read_rows(data, "train")
        comparison = compare_policies(
            policies,
            rows,
            train_rows,
            open_model,
            load_policy,
            data=data,
            split=split,
            max_answer_tokens=max_answer_tokens,
            seed=seed,
        )
        write_report(comparison, out)
        say(f"report: {out / 'report.html'}")
        if as_json:
            print_json(to_json(comparison))
            return
        print(as_text(measure_table(comparison)))
        if comparison.choices:
            print("\n" + as_text(choice_table(comparison)))


def read_context_size(text: str) -> int | None:
    """ "all" to None, a whole number to itself; UserError for anything else."""
    if text == "all":
        return None
    if not text.isdecimal():
        raise UserError(f"--context-size {text}", "a number of excerpts, or all", "change the value")
    return int(text)


def add_eval(app: typer.Typer, open_model: OpenModel) -> None:
    """`modegraph eval …`."""
    from eval.cli_alignment import register as add_alignment

    commands = typer.Typer(help="Measure one part of the road on its own.", no_args_is_help=True)
    app.add_typer(commands, name="eval")

    @commands.callback()
    def group() -> None:
        """Measure one part of the road on its own."""

    add_retrieval(commands, open_model)
    add_alignment(commands)


def add_retrieval(commands: typer.Typer, open_model: OpenModel) -> None:
    """`modegraph eval retrieval`."""
    from eval.spread import SpreadingCommand

    @commands.command(cls=SpreadingCommand)
    def retrieval(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        questions: Annotated[Path, typer.Option(help="Questions with gold_ids, .jsonl.")],
        modes: Annotated[
            list[str],
            typer.Option("--modes", help="Modes, one or several (--modes dense naive); the first is the baseline."),
        ],
        split: Annotated[str | None, typer.Option(help="Only questions of train, dev or test.")] = None,
        top_k: Annotated[int, typer.Option(min=1, help="How many passages to retrieve.")] = 10,
        unit: Annotated[
            str, typer.Option("--as", help="What statements and topics return: passages or propositions.")
        ] = "passages",
        where: Annotated[
            list[str] | None, typer.Option(help="Only documents with KEY=VALUE, one or several conditions.")
        ] = None,
        model: Annotated[
            str | None, typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL, asked by the modes that can use one.")
        ] = None,
        selector: Annotated[
            str, typer.Option(help="threshold, llm or a trained one's folder, in modes that choose propositions.")
        ] = "threshold",
        reranker: Annotated[str, typer.Option(help="Cross-encoder for every mode: a folder or a hub name.")] = "",
        out: Annotated[
            Path | None, typer.Option(help="Folder for figures, plot, rankings and the call ledger.")
        ] = None,
        seed: Seed = 0,
        as_json: AsJson = False,
    ) -> None:
        """Compare retrieval modes on questions with gold documents: Recall, all-gold, MRR, nDCG, seconds a query."""
        from functools import partial

        from eval.retrieval import (
            LEDGER,
            evaluate_retrieval,
            reachable_questions,
            retrieval_json,
            retrieval_table,
            select_questions,
            write_retrieval,
        )
        from eval.tables import as_text
        from graph.config import parse_settings
        from graph.index import open_index
        from graph.questions import read_questions
        from graph.retrieve import RetrieveSettings, retrieve

        common = {"top_k": top_k, "unit": unit, "where": where or (), "selector": selector, "reranker": reranker}
        settings = {
            mode: parse_settings(RetrieveSettings, {"mode": mode, **common}, "eval retrieval") for mode in modes
        }
        opened = open_index(index)
        asked = select_questions(read_questions(questions), split, opened.sources())
        allowed = opened.where(settings[modes[0]].conditions)
        asked = reachable_questions(asked, allowed.sources()) if where else asked
        helper = open_model(model, out / LEDGER if out is not None else None) if model is not None else None
        retrievers = {mode: partial(retrieve, opened, settings=each, model=helper) for mode, each in settings.items()}
        report = evaluate_retrieval(asked, retrievers, top_k, seed)
        if out is not None:
            write_retrieval(report, out)
        print_json(retrieval_json(report)) if as_json else print(as_text(retrieval_table(report)))


def add_demo(app: typer.Typer) -> None:
    """`modegraph demo`, which runs the other commands of `app`."""

    @app.command()
    def demo(
        out: Annotated[Path, typer.Option(help="Folder for everything the demo makes.")] = Path("demo-run"),
        as_json: AsJson = False,
    ) -> None:
        """The whole road on the example documents with a tiny model trained on the spot; no network, key or GPU."""
        from eval.demo import demo_json, run_demo

        def run(command: Sequence[str]) -> int:
            return app(list(command), prog_name="modegraph", standalone_mode=False) or 0

        result = run_demo(out, run, say if as_json else print)
        if as_json:
            print_json(demo_json(result))
            return
        print(f"Report: {result.report}\n\nTry next:")
        for command in result.next_commands:
            print(f"  {command}")
