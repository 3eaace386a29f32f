"""`modegraph synth route`."""

from pathlib import Path
from typing import Annotated

import typer

from graph.shared.console import track
from graph.shared.types import OpenModel


def register(synth: typer.Typer, open_model: OpenModel) -> None:
    """Add `route` to the commands of `synth`."""

    @synth.command()
    def route(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        questions: Annotated[Path, typer.Option(help="Questions with gold documents, one JSON object a line.")],
        out: Annotated[Path | None, typer.Option(help="The folder to write (not needed with --preview).")] = None,
        modes: Annotated[str, typer.Option(help="Modes of `modegraph ask` to run, divided by commas.")] = (
            "dense,hierarchy,lexical,hybrid,hops,paths,local"
        ),
        tolerance: Annotated[
            float, typer.Option(min=0, max=1, help="How far below the best Recall@5 the cheapest mode may be.")
        ] = 0.01,
        model: Annotated[
            str | None, typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL, for the modes that can ask one.")
        ] = None,
        seed: Annotated[int, typer.Option(help="Of the split into train, dev and test.")] = 0,
        preview: Annotated[
            int | None, typer.Option(min=1, help="Show this many rows, of the first questions, and write nothing.")
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Questions with what every retrieval mode finds and costs, and the cheapest good one: data for a router."""
        from data_synth.contexts import check_gold
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.relevance.gold import read_gold_questions
        from data_synth.route.rows import route_rows
        from data_synth.route.runs import parse_modes
        from data_synth.route.types import FORM
        from graph.index.index import open_index

        chosen = parse_modes(modes)
        asked = read_gold_questions(questions)[:preview]
        opened = open_index(index)
        check_gold((each.question for each in asked), frozenset(opened.sources()))
        ledger = ledger_of(out, preview)
        opened_model = open_model(model, ledger) if model else None
        origin = {
            "Index": index.name,
            "Encoder": opened.encoder_source.fingerprint,
            "Questions": questions.name,
            "Modes": ", ".join(chosen),
            "Tolerance": f"{tolerance:g}",
            "Model": opened_model.name if opened_model else "none",
            "Seed": str(seed),
        }
        rows = route_rows(opened, asked, chosen, tolerance, seed, opened_model, track)
        if not deliver(rows, FORM, origin, out, preview, as_json):
            raise typer.Exit(1)
