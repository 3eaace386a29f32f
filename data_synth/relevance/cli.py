"""`modegraph synth relevance`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graph.shared.cli_app import INPUT, MODEL, RETRIEVAL, Command
from graph.shared.cli_options import SPEC, AsJson, Corpus, IndexFolder, Preview, Questions, Seed, SomeOut
from graph.shared.console import track

if TYPE_CHECKING:
    from graph.shared.types import OpenModel

Beside = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=INPUT,
        help="Relevance data to train with together: no question or passage of another split there is used. Repeatable.",
    ),
]
SplitBy = Annotated[
    Literal["passages", "questions"],
    typer.Option(
        metavar="WHAT",
        rich_help_panel=INPUT,
        help="Splits share no passages and no questions, or with `questions` no questions only, for facts that all questions draw on.",
    ),
]
Negatives = Annotated[
    int,
    typer.Option(metavar="N", min=0, rich_help_panel=RETRIEVAL, help="Hard negatives to search out for each question."),
]
DistilFrom = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC", rich_help_panel=MODEL, help=f"Language model that labels in place of the gold: {SPEC}."
    ),
]


def register(synth: typer.Typer, open_model: "OpenModel") -> None:
    """Add `relevance` to the commands of `synth`."""

    @synth.command(cls=Command)
    def relevance(
        index: IndexFolder,
        questions: Questions,
        corpus: Corpus = None,
        beside: Beside = None,
        split_by: SplitBy = "passages",
        negatives: Negatives = 64,
        distil_from: DistilFrom = None,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Label the relevant and irrelevant propositions of each question: data for `train selector`.

        The questions' gold passages and sentences tell which are relevant, or with --distil-from a model does. The seed splits
        the rows into train, dev and test.
        """
        from data_synth.dataset.deliver import deliver, ledger_of
        from data_synth.relevance.beside import as_held, read_held, without_held
        from data_synth.relevance.gold import CORPUS, check_sources, read_gold_questions, with_sentences
        from data_synth.relevance.rows import relevance_rows
        from data_synth.relevance.split import make_split
        from data_synth.relevance.types import FORM, SPLIT_BY
        from graph.index.index import open_index

        held = read_held(beside or [])
        asked = as_held(read_gold_questions(questions), held.questions)
        if distil_from is None:
            asked = with_sentences(asked, corpus or questions.parent / CORPUS)
        opened = open_index(index)
        check_sources(asked, opened.sources())
        ledger = ledger_of(out, preview)
        model = open_model(distil_from, ledger) if distil_from else None
        origin = {
            "Index": index.name,
            "Encoder": opened.encoder_source.fingerprint,
            "Questions": questions.name,
            "Labelled by": model.name if model else "the questions' gold",
            "Hard negatives for a question": str(negatives),
            "Seed": str(seed),
            SPLIT_BY: split_by,
            "Kept apart from": ", ".join(folder.name for folder in beside or []) or "no other dataset",
        }
        split = without_held(make_split(opened, asked, seed, split_by), opened, held.propositions)
        each = asked if preview is not None else track(asked, "questions", len(asked))
        rows = relevance_rows(opened, each, split, negatives, model)
        if not deliver(rows, FORM, origin, out, preview, as_json):
            raise typer.Exit(1)
