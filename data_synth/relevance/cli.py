"""`modegraph synth relevance`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from graph.shared.console import track
from graph.shared.types import OpenModel


def register(synth: typer.Typer, open_model: OpenModel) -> None:
    """Add `relevance` to the commands of `synth`."""

    @synth.command()
    def relevance(
        index: Annotated[Path, typer.Argument(help="The index folder that `modegraph index` made.")],
        questions: Annotated[Path, typer.Option(help="Questions with gold, one JSON object a line.")],
        out: Annotated[Path | None, typer.Option(help="The folder to write (not needed with --preview).")] = None,
        negatives: Annotated[int, typer.Option(min=0, help="Hard negatives for each question, searched out.")] = 64,
        seed: Annotated[int, typer.Option(help="Of the split into train, dev and test.")] = 0,
        split_by: Annotated[
            Literal["passages", "questions"],
            typer.Option(
                help="passages: no two splits share a question or a passage; questions: passages may be shared, for facts that all questions draw on."
            ),
        ] = "passages",
        corpus: Annotated[
            Path | None,
            typer.Option(
                help="Whose `sentences` the questions' supporting_sentences count. Default: corpus.jsonl beside them."
            ),
        ] = None,
        distil_from: Annotated[
            str | None, typer.Option(help="hf:PATH_OR_NAME or openai:NAME@URL: a model labels instead of the gold.")
        ] = None,
        beside: Annotated[
            list[Path] | None,
            typer.Option(
                help="A relevance dataset to train with this one, repeatable: no split shares with its others."
            ),
        ] = None,
        preview: Annotated[int | None, typer.Option(min=1, help="Show this many rows and write nothing.")] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    ) -> None:
        """Questions with relevant and irrelevant propositions and what retrieval knows of each: data for a selector."""
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
