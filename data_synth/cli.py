"""The commands of data synthesis: `modegraph synth preferences`."""

from pathlib import Path
from typing import Annotated

import typer

from graph.console import print_json, say, track
from graph.errors import UserError
from graph.types import OpenModel


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `synth` and its sub-commands to the command line."""
    synth = typer.Typer(help="Make training data from an index and questions.", no_args_is_help=True)
    app.add_typer(synth, name="synth")

    @synth.callback()
    def sub_commands() -> None:
        """Keep `synth preferences` a sub-command while it is the only one."""

    @synth.command()
    def preferences(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        questions: Annotated[Path, typer.Option(help="Questions with gold answers, one JSON object a line.")],
        out: Annotated[Path | None, typer.Option(help="The folder to write (not needed with --preview).")] = None,
        mode: Annotated[str, typer.Option(help="How to retrieve: any mode of `modegraph ask`.")] = "dense",
        max_context: Annotated[int, typer.Option(min=1, help="The largest context, in excerpts.")] = 5,
        max_context_tokens: Annotated[
            int | None, typer.Option(help="The longest context, in tokens; passages that do not fit are left out.")
        ] = None,
        reasoner: Annotated[
            str | None, typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL; without one, gold sentences are used.")
        ] = None,
        split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable. Default: all.")] = None,
        preview: Annotated[int | None, typer.Option(min=1, help="Show this many rows and write nothing.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Preference pairs over growing contexts: reasoning with the answer is chosen, the bare answer rejected."""
        from dataclasses import asdict
        from itertools import islice

        from data_synth.preferences import BY_RULES, check_gold, pick_questions, preference_rows
        from data_synth.show import rows_to_json, show_rows, show_summary
        from data_synth.summary import Origin
        from data_synth.write import LEDGER, check_folder, write_preferences
        from graph.config import parse_settings
        from graph.index import open_index
        from graph.questions import read_questions
        from graph.retrieve import RetrieveSettings

        values = {"mode": mode, "top_k": max_context, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth preferences")
        picked = pick_questions(read_questions(questions), split or [])
        opened = open_index(index)
        check_gold(picked, frozenset(opened.sources()))

        if preview is not None:
            model = open_model(reasoner) if reasoner else None
            first = list(islice(preference_rows(opened, picked[:preview], settings, model), preview))
            print_json(rows_to_json(first)) if as_json else print(show_rows(first))
            return
        if out is None:
            raise UserError("no --out", "a folder to write to", "give --out DIR, or --preview N to look at rows first")
        check_folder(out)
        model = open_model(reasoner, out / LEDGER) if reasoner else None
        rows = preference_rows(opened, track(picked, "questions", len(picked)), settings, model)
        made_by = model.name if model else BY_RULES
        origin = Origin(index.name, questions.name, mode, max_context, made_by, max_context_tokens)
        summary = write_preferences(out, rows, origin)
        print_json({"out": str(out), **asdict(summary)}) if as_json else print(show_summary(summary, out))
        if summary.mostly_lost:
            say(f"modegraph: {sum(summary.drops.values()):,} rows were dropped, only {summary.rows:,} kept; see {out}")
            raise typer.Exit(1)
