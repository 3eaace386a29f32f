"""`modegraph synth questions`."""

from typing import TYPE_CHECKING, Annotated

import typer

from graph.shared.cli_app import OUTPUT, command
from graph.shared.cli_options import AsJson, IndexFolder, Judge, ModeName, Preview, Seed, SomeOut, Writer
from graph.shared.errors import UserError
from graph.shared.modes import DEFAULT_MODE

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

Hops = Annotated[
    list[int] | None,
    typer.Option(
        metavar="N",
        min=2,
        max=4,
        rich_help_panel=OUTPUT,
        help="Documents that an answer needs; 2, 3 and 4 by default. Repeatable.",
    ),
]
Count = Annotated[int, typer.Option(metavar="N", min=1, rich_help_panel=OUTPUT, help="Questions to make, at most.")]


def register(synth: typer.Typer, open_model: "OpenModel") -> None:
    """Add `questions` to the commands of `synth`."""

    @synth.command(cls=command({"--critic": "--judge"}))
    def questions(
        index: IndexFolder,
        mode: ModeName = DEFAULT_MODE,
        writer: Writer = None,
        judge: Judge = None,
        seed: Seed = 0,
        hops: Hops = None,
        count: Count = 500,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make multi-hop questions with answers and the passages they need.

        Templates over the index's sentences make them, unless --writer names a model; what it wrote is answered anew over
        what --mode finds, and marked by --judge.
        """
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.questions.make import QuestionSpec, question_rows
        from data_synth.questions.types import BY_TEMPLATES, FORM
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings
        from graph.shared.config import parse_settings

        if judge and not writer:
            raise UserError(f"--judge {judge} without --writer", "a model whose questions it judges", "give --writer")
        settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": 10}, "synth questions")
        opened = open_index(index)
        ledger = ledger_of(out, preview)
        models = [open_model(spec, ledger) if spec else None for spec in (writer, judge)]
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
