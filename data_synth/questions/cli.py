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
        min=1,
        max=4,
        rich_help_panel=OUTPUT,
        help="Documents that an answer needs; 1, 2, 3 and 4 by default. Repeatable.",
    ),
]
Count = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=OUTPUT,
        help="Questions to make; if there are fewer, the command exits with 1. As many as come, up to 500, by default.",
    ),
]
Unanswerable = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        min=0.0,
        max=0.5,
        rich_help_panel=OUTPUT,
        help="Share of questions that the documents do not answer, each near one that they do.",
    ),
]
MOST_QUESTIONS = 500


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
        count: Count = None,
        unanswerable: Unanswerable = 0.0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make questions over one document or several, with answers and the passages they need.

        Templates over the index's sentences make them, unless --writer names a model; what it wrote is answered anew over
        what --mode finds, and marked by --judge. All questions on a document are in one split.
        """
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.questions.make import QuestionSpec, question_rows, shortage
        from data_synth.questions.types import BY_TEMPLATES, FORM, QuestionRow
        from data_synth.types import Dropped
        from graph.index.index import open_index
        from graph.retrieve import RetrieveSettings
        from graph.shared.config import parse_settings
        from graph.shared.console import say

        if judge and not writer:
            raise UserError(f"--judge {judge} without --writer", "a model whose questions it judges", "give --writer")
        if unanswerable and writer:
            raise UserError(
                f"--unanswerable {unanswerable:g} with --writer", "questions by rules", "drop one of the two"
            )
        settings = parse_settings(RetrieveSettings, {"mode": mode, "top_k": 10}, "synth questions")
        opened = open_index(index)
        ledger = ledger_of(out, preview)
        models = [open_model(spec, ledger) if spec else None for spec in (writer, judge)]
        most, wanted = count or MOST_QUESTIONS, count or min(MOST_QUESTIONS, len(opened.sources()))
        spec = QuestionSpec(min(most, preview or most), tuple(hops or (1, 2, 3, 4)), seed, unanswerable)
        origin = {
            "Index": index.name,
            "Written by": models[0].name if models[0] else BY_TEMPLATES,
            "Judged by": models[1].name if models[1] else "nobody",
            "Answers rebuilt from": f"10 excerpts of mode {settings.mode}" if writer else "the index's own sentences",
            "Hops asked for": ", ".join(map(str, spec.hops)),
            "Share of unanswerable ones": f"{unanswerable:g}",
            "Seed": str(seed),
        }
        rows = list(question_rows(opened, spec, models[0], models[1], settings))
        made = [row for row in rows if isinstance(row, QuestionRow)]
        lost = [row for row in rows if isinstance(row, Dropped)]
        well = deliver([*made, *lost], FORM, origin, out, preview, as_json)
        missing = shortage(min(wanted, spec.count), len(made), lost, models[0].name if models[0] else None)
        if missing:
            say(f"modegraph: {missing}")
        if missing or not well:
            raise typer.Exit(1)
