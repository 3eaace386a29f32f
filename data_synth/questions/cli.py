"""`modegraph synth questions`."""

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.errors import UserError
from graph.shared.types import OpenModel


def register(synth: typer.Typer, open_model: OpenModel) -> None:
    """Add `questions` to the commands of `synth`."""

    @synth.command()
    def questions(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        out: Annotated[Path | None, typer.Option(help="The folder to write (not needed with --preview).")] = None,
        count: Annotated[int, typer.Option(min=1, help="How many questions to make, at most.")] = 500,
        hops: Annotated[
            list[int] | None,
            typer.Option(min=2, max=4, help="How many documents an answer needs; repeatable. Default: 2, 3 and 4."),
        ] = None,
        seed: Annotated[int, typer.Option(help="Of the choice of documents.")] = 0,
        writer: Annotated[
            str | None,
            typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL; without one, templates over the index's sentences."),
        ] = None,
        critic: Annotated[str | None, typer.Option(help="A model that judges what --writer wrote.")] = None,
        mode: Annotated[str, typer.Option(help="How answers of --writer are looked for: any mode of `ask`.")] = "hops",
        preview: Annotated[int | None, typer.Option(min=1, help="Show this many rows and write nothing.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Multi-hop questions with their answers and the passages they need, from the index alone or by a model."""
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.questions.make import QuestionSpec, question_rows
        from data_synth.questions.types import BY_TEMPLATES, FORM
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings
        from graph.shared.config import parse_settings

        if critic and not writer:
            raise UserError(f"--critic {critic} without --writer", "a model whose questions it judges", "give --writer")
        settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": 10}, "synth questions")
        opened = open_index(index)
        ledger = ledger_of(out, preview)
        models = [open_model(spec, ledger) if spec else None for spec in (writer, critic)]
        spec = QuestionSpec(min(count, preview or count), tuple(hops or (2, 3, 4)), seed)
        origin = {
            "Index": index.name,
            "Written by": models[0].name if models[0] else BY_TEMPLATES,
            "Judged by": models[1].name if models[1] else "nobody",
            "Answers rebuilt from": f"10 excerpts of mode {settings.mode}" if writer else "the index's own sentences",
            "Hops asked for": ", ".join(map(str, spec.hops)),
            "Seed": str(seed),
        }
        rows = question_rows(opened, spec, models[0], models[1], settings)
        if not deliver(rows, FORM, origin, out, preview, as_json):
            raise typer.Exit(1)
