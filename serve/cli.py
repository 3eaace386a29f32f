"""The commands of serving: `modegraph ask`."""

from pathlib import Path
from typing import Annotated

import typer

from graph.console import print_json, say
from graph.types import OpenModel


def register(app: typer.Typer, open_model: OpenModel) -> None:
    """Add `ask` to the command line."""

    @app.command()
    def ask(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        question: Annotated[str, typer.Argument(help="The question, in quotes.")],
        mode: Annotated[str, typer.Option(help="How to retrieve: dense, naive or hierarchy.")] = "dense",
        top_k: Annotated[int, typer.Option(help="How many passages to read.")] = 5,
        model: Annotated[
            str | None, typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL; without one the evidence is shown.")
        ] = None,
        retrieve_only: Annotated[
            bool, typer.Option("--retrieve-only", help="Show the evidence, ask no model.")
        ] = False,
        max_answer_tokens: Annotated[int, typer.Option(min=1, help="The longest answer, in tokens.")] = 256,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Answer a question from an index, with citations; without a model, show what was found."""
        from dataclasses import asdict

        from graph.config import parse_settings
        from graph.index import open_index
        from graph.retrieve import RetrieveSettings, retrieve
        from serve.answering import answer_from
        from serve.show import show_answer, show_evidence

        settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": top_k}, "ask")
        evidence = retrieve(open_index(index), question, settings)
        if model is None or retrieve_only:
            print_json(asdict(evidence)) if as_json else print(show_evidence(evidence))
            return
        say(f"opening {model}")
        answer = answer_from(evidence, top_k, open_model(model), max_answer_tokens)
        print_json(asdict(answer)) if as_json else print(show_answer(answer))
