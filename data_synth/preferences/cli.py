"""`modegraph synth preferences`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from graph.shared.types import OpenModel


class Shape(StrEnum):
    """Whether the texts of a row are lists of messages or strings."""

    chat = "chat"
    plain = "plain"


def register(synth: typer.Typer, open_model: OpenModel) -> None:
    """Add `preferences` to the commands of `synth`."""

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
            list[str] | None,
            typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL, repeatable; without one, gold sentences are used."),
        ] = None,
        checker: Annotated[str | None, typer.Option(help="A model that says if a reasoning is supported.")] = None,
        controls: Annotated[
            float, typer.Option(min=0, max=0.5, help="Share of pairs whose rejected side reasons as long as the other.")
        ] = 0.0,
        shape: Annotated[Shape, typer.Option("--format", help="Lists of messages, or strings.")] = Shape.chat,
        split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable. Default: all.")] = None,
        preview: Annotated[int | None, typer.Option(min=1, help="Show this many rows and write nothing.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Preference pairs over growing contexts: reasoning with the answer is chosen, the bare answer rejected."""
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.preferences.preference_form import PLAIN_PREFERENCES, PREFERENCES
        from data_synth.preferences.run import Models, preference_run
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings
        from graph.shared.config import parse_settings

        values = {"mode": mode, "top_k": max_context, "max_context_tokens": max_context_tokens}
        settings = parse_settings(RetrieveSettings, values, "synth preferences")
        models = Models(reasoner or [], checker, ledger_of(out, preview))
        splits = split or []
        run = preference_run(
            open_index(index), questions, settings, models, open_model, controls=controls, splits=splits, first=preview
        )
        form = PREFERENCES if shape is Shape.chat else PLAIN_PREFERENCES
        if not deliver(run.rows, form, run.origin, out, preview, as_json):
            raise typer.Exit(1)
