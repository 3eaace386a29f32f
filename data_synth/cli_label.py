"""`modegraph synth reading`, `relevance` and `claims`: the commands that make labelled rows from an index (and, except `claims`, from questions)."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from graph.shared.cli_app import INPUT, MODEL, OUTPUT, RETRIEVAL, Command, command, option
from graph.shared.cli_options import (
    SPEC,
    AsJson,
    Config,
    Corpus,
    IndexFolder,
    Preview,
    Questions,
    Seed,
    Set,
    SomeOut,
    Splits,
)
from graph.shared.console import track

if TYPE_CHECKING:
    from graph.types import OpenModel


def register_reading(synth: typer.Typer) -> None:
    @synth.command(cls=command(settings="data_synth.reading.reading_rows:ReadingSettings"))
    def reading(
        index: IndexFolder,
        questions: Questions,
        split: Splits = None,
        config: Config = None,
        settings: Set = None,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make rows that teach reading: questions over shuffled passages, answered in few words with citations.

        Gold passages, which contain a question's evidence, are mixed with others, such as BM25's top hits; in a share of the
        rows the passages do not answer the question, and the answer is "not in the documents". Data for `train sft`.
        """
        from data_synth.contexts import pick_questions
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.reading.reading_form import READING
        from data_synth.reading.reading_rows import ReadingSettings, reading_rows, set_of_index
        from graph.config import load_settings
        from graph.documents.questions import read_questions
        from graph.index.index import open_index

        chosen = load_settings(ReadingSettings, config, settings or ())
        ledger_of(out, preview)
        picked = pick_questions(read_questions(questions), split or [])
        rows = reading_rows(set_of_index(open_index(index), picked), chosen)
        origin = {"Index": index.name, "Questions": questions.name}
        if not write_or_preview(rows, READING, origin, out, preview, as_json):
            raise typer.Exit(1)


Beside = Annotated[
    list[Path] | None,
    option(
        "FOLDER",
        INPUT,
        "Relevance data to train on as well. A question keeps the split it has there; a proposition of another split there is left out here. Repeatable.",
    ),
]
SplitBy = Annotated[
    Literal["passages", "questions"],
    option(
        "WHAT",
        INPUT,
        "What no two splits share: passages and questions, or only `questions`, for questions that all need the same facts.",
    ),
]
Negatives = Annotated[int, option("N", RETRIEVAL, "Hard negatives to find for each question.", min=0)]
DistilFrom = Annotated[
    str | None, option("SPEC", MODEL, f"Language model that labels the propositions, instead of the gold data: {SPEC}.")
]


def register_relevance(synth: typer.Typer, open_model: "OpenModel") -> None:
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

        Labels come from the questions' gold passages and sentences, or, with --distil-from, from a model. A question keeps the
        split that its file states; the seed determines the splits of questions without one.
        """
        from data_synth.dataset.write import ledger_of, write_or_preview
        from data_synth.relevance.gold import CORPUS, check_sources, read_gold_questions, with_sentences
        from data_synth.relevance.relevance_form import RELEVANCE, SPLIT_BY
        from data_synth.relevance.relevance_rows import relevance_rows
        from data_synth.relevance.split import exclude_overlap, keep_earlier_splits, make_split, read_earlier_splits
        from graph.index.index import open_index

        earlier_questions, earlier_propositions = read_earlier_splits(beside or [])
        gold = keep_earlier_splits(read_gold_questions(questions), earlier_questions)
        if distil_from is None:
            gold = with_sentences(gold, corpus or questions.parent / CORPUS)
        opened_index = open_index(index)
        check_sources(gold, opened_index.sources())
        ledger = ledger_of(out, preview)
        model = open_model(distil_from, ledger) if distil_from else None
        origin = {
            "Index": index.name,
            "Encoder": opened_index.encoder_source.fingerprint,
            "Questions": questions.name,
            "Labelled by": model.name if model else "the questions' gold passages and sentences",
            "Hard negatives for a question": str(negatives),
            "Seed": str(seed),
            SPLIT_BY: split_by,
            "Kept apart from": ", ".join(folder.name for folder in beside or []) or "no other dataset",
        }
        split = exclude_overlap(make_split(opened_index, gold, seed, split_by), opened_index, earlier_propositions)
        tracked = gold if preview is not None else track(gold, "questions", len(gold))
        rows = relevance_rows(opened_index, tracked, split, negatives, model)
        if not write_or_preview(rows, RELEVANCE, origin, out, preview, as_json):
            raise typer.Exit(1)


PerPassage = Annotated[
    int, option("N", OUTPUT, "Largest number of supported claims per passage, each with an unsupported version.", min=1)
]


def register_claims(synth: typer.Typer) -> None:
    @synth.command(cls=Command)
    def claims(
        index: IndexFolder,
        per_passage: PerPassage = 4,
        seed: Seed = 0,
        out: SomeOut = None,
        preview: Preview = None,
        as_json: AsJson = False,
    ) -> None:
        """Make sentences that passages support, and falsified ones: data for `train verifier`.

        Rules restate a sentence, then change a name, a number, a negation or who did what, or replace a word with its opposite.
        """
        from data_synth.claims.claims import CLAIMS, claim_rows, passages_of
        from data_synth.dataset.write import ledger_of, write_or_preview
        from graph.index.index import open_index

        ledger_of(out, preview)
        rows = claim_rows(passages_of(open_index(index)), per_passage, seed)
        origin = {"Index": index.name, "Claims per passage": str(per_passage), "Seed": str(seed)}
        if not write_or_preview(rows, CLAIMS, origin, out, preview, as_json):
            raise typer.Exit(1)
